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

/** Returns how many requests of a body count for the rate of a key. A body that is not JSON counts as one. */
export function countedRequests(message: unknown): number {
  const all: unknown[] = Array.isArray(message) ? message : [message]
  return all.filter((one) => {
    const { method } = sketchOf(one)
    return one === undefined || (method !== '' && !harmless.includes(method))
  }).length
}

/** Returns whether messages to this upstream must be checked before they are forwarded. */
export const isRestricted = ({ tools, suspended, constraints }: UpstreamTarget): boolean =>
  tools !== 'all' || suspended.size > 0 || constraints.size > 0

/** Returns whether the caller may call a tool with some arguments. */
export const mayCall = ({ tools, suspended }: UpstreamTarget, tool: string): boolean =>
  !suspended.has(tool) && (tools === 'all' || tools.has(tool))

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

function requireOne(message: unknown, target: UpstreamTarget): void {
  const { name: upstream, tools, suspended, constraints, readOnly } = target
  const { method, tool } = sketchOf(message)
  const denied = (what: string, reason: string) =>
    new Refusal('upstream_tool_denied', { tool: what.slice(0, 128), upstream, reason })
  if (method === 'tools/call') {
    if (suspended.has(tool)) throw denied(tool, 'it has changed since an administrator approved it')
    if (tools !== 'all' && !tools.has(tool)) {
      throw denied(tool, readOnly ? 'this key may only call read-only tools' : 'this key is limited to other tools')
    }
    const { params } = message as { params?: { arguments?: unknown } }
    const problem = constraints.get(tool)?.problemOf(params?.arguments ?? {})
    if (problem !== undefined) throw denied(tool, `this key may not use these arguments: ${problem}`)
    return
  }
  // A message without a method is a response to a request of the upstream.
  if (tools === 'all' || method === '' || harmless.includes(method)) return
  throw denied(method, 'this key is limited to tools')
}
