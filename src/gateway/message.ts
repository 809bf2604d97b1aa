import { Refusal } from '../base/errors.ts'
import { parseJson } from '../base/json.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'

/** The fields of a JSON-RPC message that the gateway uses. */
export interface Sketch {
  method: string
  /** Name of the tool in `tools/call`; empty for other methods. */
  tool: string
  /** `undefined` for a notification and for an invalid ID. */
  id: string | number | undefined
}

const nothing: Sketch = { method: '', tool: '', id: undefined }

/** Reads the fields of a message; missing and invalid ones are empty. For a batch, reads its first message. */
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

/** BOUNDARY: parses a body. @returns `undefined` if it is not JSON. */
export function tryParse(body: Buffer): unknown {
  try {
    return parseJson(body)
  } catch {
    return undefined
  }
}

/** Methods besides `tools/call` that a key may use if it is limited to some tools of an upstream. */
const harmless: readonly string[] = [
  ...['initialize', 'ping', 'tools/list', 'server/discover', 'logging/setLevel'],
  ...['notifications/initialized', 'notifications/cancelled', 'notifications/progress'],
]

/** Returns whether messages to this upstream must be checked before they are forwarded. */
export const isRestricted = ({ tools, suspended }: UpstreamTarget): boolean => tools !== 'all' || suspended.size > 0

/**
 * Checks a message, or each message of a batch, against the tools that the caller may call.
 * @param message the parsed body; `undefined` if it is not JSON.
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
  // A message without a method is a response to a request of the upstream.
  if (tools === 'all' || method === '' || harmless.includes(method)) return
  throw denied(method, 'this key is limited to tools')
}
