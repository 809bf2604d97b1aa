import { Refusal } from '../base/errors.ts'

export type RequestId = string | number

export type Message =
  | { kind: 'request'; id: RequestId; method: string; params: Params }
  | { kind: 'notification'; method: string; params: Params }
  /** An answer to something we never ask; taken and dropped. */
  | { kind: 'response' }
  /** Not a message; `id` is `null` where none could be read. */
  | { kind: 'invalid'; id: RequestId | null; refusal: Refusal }

export type Params = Readonly<Record<string, unknown>>

/** Reads one JSON-RPC 2.0 message: https://www.jsonrpc.org/specification */
export function toMessage(value: unknown): Message {
  if (!isObject(value)) return invalid(null, 'a message must be an object')
  const id = own(value, 'id')
  const method = own(value, 'method')
  const readableId = isRequestId(id) ? id : null
  if (own(value, 'jsonrpc') !== '2.0') return invalid(readableId, 'jsonrpc must be "2.0"')
  if (method === undefined) {
    const answers = Object.hasOwn(value, 'result') || Object.hasOwn(value, 'error')
    return answers ? { kind: 'response' } : invalid(readableId, 'method is missing')
  }
  if (typeof method !== 'string') return invalid(readableId, 'method must be a string')
  const params = own(value, 'params') ?? {}
  if (!isObject(params)) return invalid(readableId, 'params must be an object')
  const meta = own(params, '_meta')
  if (meta !== undefined && !isObject(meta)) return invalid(readableId, 'params._meta must be an object')
  if (!Object.hasOwn(value, 'id')) return { kind: 'notification', method, params }
  if (readableId === null) return invalid(null, 'id must be a string or a number')
  return { kind: 'request', id: readableId, method, params }
}

/** A property of the message itself, never of its prototype. */
export function own(value: Params, name: string): unknown {
  return Object.hasOwn(value, name) ? value[name] : undefined
}

export function isObject(value: unknown): value is Params {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

const isRequestId = (id: unknown): id is RequestId =>
  typeof id === 'string' || (typeof id === 'number' && Number.isFinite(id))

const invalid = (id: RequestId | null, problem: string): Message => ({
  kind: 'invalid',
  id,
  refusal: new Refusal('invalid_request', { problem }),
})

/** @param resultJson the result, already as JSON. */
export const resultText = (id: RequestId, resultJson: string): string =>
  `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${resultJson}}`

export function errorText(id: RequestId | null, code: number, message: string, data: object | undefined): string {
  return JSON.stringify({ jsonrpc: '2.0', id, error: { code, message, ...(data && { data }) } })
}

export const notificationText = (method: string, params: object): string =>
  JSON.stringify({ jsonrpc: '2.0', method, params })
