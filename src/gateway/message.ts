import { Refusal } from '../base/errors.ts'
import { parseJson } from '../base/json.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'

/** What the gateway needs to know of a message. */
export interface Sketch {
  method: string
  /** Of `tools/call`; otherwise empty. */
  tool: string
  /** `undefined` for a notification or where it is not valid. */
  id: string | number | undefined
}

const nothing: Sketch = { method: '', tool: '', id: undefined }

/** Describes a message as far as it can be read. A batch is described by its first message. */
export function sketchOf(message: unknown): Sketch {
  const one: unknown = Array.isArray(message) ? message[0] : message
  if (typeof one !== 'object' || one === null) return nothing
  const { method, id, params } = one as { method?: unknown; id?: unknown; params?: { name?: unknown } }
  const name = params?.name
  return {
    method: typeof method === 'string' ? method : '',
    tool: method === 'tools/call' && typeof name === 'string' ? name : '',
    id: typeof id === 'string' || typeof id === 'number' ? id : undefined,
  }
}

/** Parses a body, or returns `undefined` where it is not JSON: the upstream answers that. */
export function tryParse(body: Buffer): unknown {
  try {
    return parseJson(body)
  } catch {
    return undefined
  }
}

/** Methods that a key which is limited to tools of an upstream may use besides `tools/call`. */
const harmless: readonly string[] = [
  ...['initialize', 'ping', 'tools/list', 'server/discover', 'logging/setLevel'],
  ...['notifications/initialized', 'notifications/cancelled', 'notifications/progress'],
]

/** Whether messages to this upstream must be inspected. */
export const isRestricted = ({ tools, suspended }: UpstreamTarget): boolean => tools !== 'all' || suspended.size > 0

/**
 * Checks a message against the tools that the caller may call.
 * @throws Refusal `upstream_tool_denied`, `invalid_request`.
 */
export function requireAllowed(message: unknown, target: UpstreamTarget): void {
  if (message === undefined) {
    throw new Refusal('invalid_request', { problem: 'this key is limited to some tools, and the body is not JSON' })
  }
  for (const one of Array.isArray(message) ? (message as unknown[]) : [message]) requireOne(one, target)
}

function requireOne(message: unknown, { name: upstream, tools, suspended }: UpstreamTarget): void {
  const { method, tool } = sketchOf(message)
  const denied = (what: string, reason: string) =>
    new Refusal('upstream_tool_denied', { tool: what.slice(0, 128), upstream, reason })
  if (method === 'tools/call') {
    if (suspended.has(tool)) throw denied(tool, 'it has changed since an administrator approved it')
    if (tools !== 'all' && !tools.has(tool)) throw denied(tool, 'this key is limited to other tools')
    return
  }
  // An answer to a request of the upstream has no method.
  if (tools === 'all' || method === '' || harmless.includes(method)) return
  throw denied(method, 'this key is limited to tools')
}
