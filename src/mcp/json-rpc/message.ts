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

/** Parses one JSON-RPC 2.0 message: https://www.jsonrpc.org/specification */
export function parseMessage(value: unknown): Message {
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
  if (!Object.hasOwn(value, 'id')) return { kind: 'notification', method, params }
  if (readableId === null) return invalid(null, 'id must be a string or a number')
  return { kind: 'request', id: readableId, method, params }
}

/** Returns an own property of a parsed object, and never one of its prototype. */
export function own(value: Params, name: string): unknown {
  return Object.hasOwn(value, name) ? value[name] : undefined
}

export function isObject(value: unknown): value is Params {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isExact(value)
}

/** BOUNDARY: the only check that an id passes before the server stores it and sends it back. */
export const isRequestId = (id: unknown): id is RequestId =>
  typeof id === 'string' || (typeof id === 'number' && Number.isFinite(id)) || isExact(id)

const invalid = (id: RequestId | null, problem: string): Message => ({
  kind: 'invalid',
  id,
  refusal: new Refusal('invalid_request', { problem }),
})
