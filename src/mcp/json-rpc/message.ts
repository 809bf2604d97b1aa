import { Refusal } from '../../base/errors.ts'
import { type ExactInteger, isExact } from '../../base/json.ts'

export type RequestId = string | number | ExactInteger

/** An object as it was parsed, whose property names and values are still unchecked. */
export type Params = Readonly<Record<string, unknown>>

export interface Request {
  kind: 'request'
  id: RequestId
  method: string
  params: Params
}

export interface Notification {
  kind: 'notification'
  method: string
  params: Params
}

export type Message =
  | Request
  | Notification
  /** An answer to a request of this server. */
  | { kind: 'response'; message: Params }
  /** Not a message; `id` is `null` where none could be read. */
  | { kind: 'invalid'; id: RequestId | null; refusal: Refusal }

/** Longest id, method, progress token or name. They are kept and repeated while a request lasts; usual ones are UUIDs. */
const nameMax = 256
/** Longest URI: the percent-encoded form of the longest path of a file. */
const uriMax = 16_384

/** Parses one JSON-RPC 2.0 message: https://www.jsonrpc.org/specification */
export function parseMessage(value: unknown): Message {
  if (Array.isArray(value)) return invalid(null, 'a message must be an object; batches are not supported')
  if (!isObject(value)) return invalid(null, 'a message must be an object')
  const id = own(value, 'id')
  const method = own(value, 'method')
  const readableId = isRequestId(id) ? id : null
  if (own(value, 'jsonrpc') !== '2.0') return invalid(readableId, 'jsonrpc must be "2.0"')
  if (method === undefined) {
    const isResponse = Object.hasOwn(value, 'result') || Object.hasOwn(value, 'error')
    return isResponse ? { kind: 'response', message: value } : invalid(readableId, 'method is missing')
  }
  if (typeof method !== 'string') return invalid(readableId, 'method must be a string')
  const params = own(value, 'params') ?? {}
  if (!isObject(params)) return invalid(readableId, 'params must be an object')
  const meta = own(params, '_meta') ?? undefined
  if (meta !== undefined && !isObject(meta)) return invalid(readableId, 'params._meta must be an object')
  const long = tooLong(method, params, meta)
  if (long !== undefined) return invalid(readableId, `${long.field} is longer than ${long.limit} characters`)
  if (!Object.hasOwn(value, 'id')) return { kind: 'notification', method, params }
  if (isTooLong(id, nameMax)) return invalid(null, `id is longer than ${nameMax} characters`)
  if (readableId === null) return invalid(null, 'id must be a string or a number')
  return { kind: 'request', id: readableId, method, params }
}

/** Members of `params` that identify something. */
const nameFields = ['name', 'taskId', 'requestId', 'cursor', 'level', 'protocolVersion'] as const

/** Returns the first member that is too long, and its limit. */
function tooLong(
  method: string,
  params: Params,
  meta: Params | undefined,
): { field: string; limit: number } | undefined {
  if (method.length > nameMax) return { field: 'method', limit: nameMax }
  for (const field of nameFields) {
    if (isTooLong(params[field], nameMax)) return { field: `params.${field}`, limit: nameMax }
  }
  if (isTooLong(params.uri, uriMax)) return { field: 'params.uri', limit: uriMax }
  if (meta && isTooLong(meta.progressToken, nameMax)) return { field: 'progressToken', limit: nameMax }
  return undefined
}

const isTooLong = (value: unknown, limit: number): boolean => typeof value === 'string' && value.length > limit

/** Returns an own property of a parsed object, and never one of its prototype. */
export function own(value: Params, name: string): unknown {
  return Object.hasOwn(value, name) ? value[name] : undefined
}

export function isObject(value: unknown): value is Params {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isExact(value)
}

/** BOUNDARY: the only check that an id passes before the server stores it and sends it back. */
export const isRequestId = (id: unknown): id is RequestId =>
  (typeof id === 'string' && id.length <= nameMax) || (typeof id === 'number' && Number.isFinite(id)) || isExact(id)

const invalid = (id: RequestId | null, problem: string): Message => ({
  kind: 'invalid',
  id,
  refusal: new Refusal('invalid_request', { problem }),
})
