import { Refusal } from '../../base/errors.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { RequestId } from './message.ts'

/** A response that is one JSON text; `status` is the HTTP status. */
export interface JsonReply {
  kind: 'json'
  status: number
  body: string
  retryAfterSeconds?: number
}

/** The answer to messages that have no response. */
export interface EmptyReply {
  kind: 'empty'
  status: 202 | 204
}

/** @param resultJson the result, encoded as JSON. */
export const encodeResult = (id: RequestId, resultJson: string): string =>
  `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${resultJson}}`

export const encodeNotification = (method: string, params: object): string =>
  JSON.stringify({ jsonrpc: '2.0', method, params })

/** @param resultJson the result, encoded as JSON. */
export const resultReply = (id: RequestId, resultJson: string): JsonReply => ({
  kind: 'json',
  status: 200,
  body: encodeResult(id, resultJson),
})

/**
 * Encodes a refusal as a JSON-RPC error.
 * @param id `null` where the request has none that could be read.
 * @param data further fields for programs; clients show the message to people and models.
 */
export function errorReply(id: RequestId | null, refusal: Refusal, status: number, data?: object): JsonReply {
  const { retryAfterSeconds } = refusal.details
  const error = { ...errorObject(refusal), ...(data && { data }) }
  return {
    kind: 'json',
    status,
    body: JSON.stringify({ jsonrpc: '2.0', id, error }),
    ...(typeof retryAfterSeconds === 'number' && { retryAfterSeconds }),
  }
}

/** Returns the error object of a refusal: https://www.jsonrpc.org/specification#error_object */
export const errorObject = ({ row, message, hint }: Refusal): { code: number; message: string } => ({
  code: row.rpc,
  message: `${message} ${hint}`,
})

/** Returns a refusal unchanged. Logs anything else as a fault, of which the client receives only the id. */
export const toRefusal = (error: unknown, log: Log): Refusal =>
  error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, log) })
