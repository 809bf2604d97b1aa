import type { Log } from '../../observe/log.ts'
import { errorReply, type JsonReply, toRefusal } from '../json-rpc/encode.ts'
import type { RequestId } from '../json-rpc/message.ts'

/**
 * Encodes an error as the response to a request. Clients of these versions read a JSON-RPC body only with a 2xx status,
 * so the status is 200, except where a retry can help: there it is the status that proxies and retry policies expect.
 */
export function legacyError(id: RequestId | null, error: unknown, log: Log): JsonReply {
  const refusal = toRefusal(error, log)
  const { http, retry, error: word } = refusal.row
  return errorReply(id, refusal, retry === 'later' ? http : 200, { error: word })
}
