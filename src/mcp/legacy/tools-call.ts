import type { LegacyVersion } from '../era.ts'
import { HandOver } from '../hand-over.ts'
import type { McpContext, McpReply } from '../handle.ts'
import { notificationText, type RequestId } from '../json-rpc.ts'
import { argumentsAsResult, errorReply, toolResultText } from './codec.ts'

export interface ToolCall {
  id: RequestId
  version: LegacyVersion
  name: string
  /** The arguments as they came. */
  given: unknown
  /** Asks for output while it is printed. */
  progressToken: string | number | undefined
}

type JsonReply = Extract<McpReply, { kind: 'json' }>

/**
 * Calls a tool. A disconnect does not cancel in these versions: the call goes on to its end either way, and only
 * `notifications/cancelled` stops it. With a progress token the answer is a stream from the moment the call was
 * taken; whatever is refused before that is a plain answer with its own status.
 * @throws Refusal `unknown_tool`.
 */
export async function callTool(call: ToolCall, context: McpContext): Promise<McpReply> {
  const tool = context.offer.find(call.name)
  const { core, caller, calls, log } = context
  const { signal, end } = calls.open(caller.keyId, call.id)
  const output = new HandOver<string>()
  const taken = Promise.withResolvers<'taken'>()
  const progress = call.progressToken === undefined ? {} : { progress: (text: string) => output.give(text) }
  const reply: Promise<JsonReply> = tool
    .call(caller, call.given, { core, signal, detached: true, started: () => taken.resolve('taken'), ...progress })
    .catch((error: unknown) => argumentsAsResult(call.version, error) ?? Promise.reject(error))
    .then((result) => ({ kind: 'json' as const, status: 200, body: toolResultText(call.id, result) }))
    .catch((error: unknown) => errorReply(call.id, error, log))
    .finally(() => {
      end()
      output.close()
    })
  if (call.progressToken === undefined) return reply
  const first = await Promise.race([taken.promise, reply])
  return first === 'taken' ? { kind: 'stream', messages: stream(call.progressToken, output, reply, signal) } : first
}

/**
 * Output as it is printed, then the answer; a cancelled call has none, as its client no longer knows the request.
 * https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation
 */
async function* stream(
  progressToken: string | number,
  output: HandOver<string>,
  reply: Promise<JsonReply>,
  cancelled: AbortSignal,
): AsyncGenerator<string, void, undefined> {
  let progress = 0
  for await (const message of output) {
    progress += 1
    yield notificationText('notifications/progress', { progressToken, progress, message })
  }
  const { body } = await reply
  if (!cancelled.aborted) yield body
}
