import { Refusal } from '../../base/errors.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { ToolResult } from '../../tools/tool.ts'
import type { LegacyVersion } from '../era.ts'
import type { McpReply } from '../handle.ts'
import { errorText, type RequestId, resultText } from '../json-rpc.ts'

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

/**
 * How a version tells a model that its arguments are wrong: as a result that it sees since 2025-11-25, as a JSON-RPC
 * error before. https://modelcontextprotocol.io/specification/2025-11-25/server/tools#error-handling
 */
export function argumentsAsResult(version: LegacyVersion, error: unknown): ToolErrorResult | undefined {
  const mendable = error instanceof Refusal && error.row.error === 'validation_error' && version >= '2025-11-25'
  return mendable ? { content: [{ type: 'text', text: inWords(error) }], isError: true } : undefined
}

type ToolErrorResult = Pick<ToolResult, 'content' | 'isError'>

export const toolResultText = (id: RequestId, result: ToolErrorResult): string => resultText(id, JSON.stringify(result))

const inWords = ({ message, hint }: Refusal): string => `${message} ${hint}`
