import { Refusal } from '../../base/errors.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { McpReply } from '../handle.ts'
import { errorText, type RequestId } from '../json-rpc.ts'

type JsonReply = Extract<McpReply, { kind: 'json' }>

/**
 * An error that answers a request. Clients of these versions read a JSON-RPC body of a 2xx answer only, so the status
 * is 200 wherever the caller has something to mend; where time alone helps, it is what proxies and retries expect.
 * Anything but a refusal is a fault: logged here, and its id is all that leaves.
 */
export function errorReply(id: RequestId | null, error: unknown, log: Log): JsonReply {
  const refusal = error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, log) })
  const { http, rpc, retry, error: word } = refusal.row
  const { retryAfterSeconds } = refusal.details
  return {
    kind: 'json',
    status: retry === 'later' ? http : 200,
    body: errorText(id, rpc, inWords(refusal), { error: word }),
    ...(typeof retryAfterSeconds === 'number' && { retryAfterSeconds }),
  }
}

const inWords = ({ message, hint }: Refusal): string => `${message} ${hint}`
