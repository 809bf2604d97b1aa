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
  /** The client reads server-sent events. */
  readsEvents: boolean
  /** Asks for output while it is printed, in events. */
  progressToken: string | number | undefined
}

type JsonReply = Extract<McpReply, { kind: 'json' }>

/**
 * Calls a tool. A disconnect does not cancel in these versions: the call goes on to its end either way, and only
 * `notifications/cancelled` stops it. The answer is plain JSON, or a stream to a client that reads events: with a
 * progress token from the moment the call was taken, otherwise once the call takes longer than `quietMs`, so that
 * neither client nor proxy waits for the head of an answer until it gives up. What is refused before that is a plain
 * answer with its own status.
 * @throws Refusal `unknown_tool`.
 */
export async function callTool(call: ToolCall, context: McpContext): Promise<McpReply> {
  const tool = context.offer.find(call.name)
  const { core, caller, calls, log } = context
  const { signal, end } = calls.open(caller.keyId, call.id)
  const output = new HandOver<string>()
  const streams = Promise.withResolvers<'streams'>()
  const follows = call.readsEvents && call.progressToken !== undefined
  const timer = call.readsEvents && !follows ? setTimeout(() => streams.resolve('streams'), context.quietMs) : undefined
  const reply: Promise<JsonReply> = tool
    .call(caller, call.given, {
      core,
      signal,
      detached: true,
      ...(follows && { started: () => streams.resolve('streams'), progress: (text: string) => output.give(text) }),
    })
    .catch((error: unknown) => argumentsAsResult(call.version, error) ?? Promise.reject(error))
    .then((result) => ({ kind: 'json' as const, status: 200, body: toolResultText(call.id, result) }))
    .catch((error: unknown) => errorReply(call.id, error, log))
    .finally(() => {
      clearTimeout(timer)
      end()
      output.close()
    })
  const first = await Promise.race([streams.promise, reply])
  return first === 'streams' ? { kind: 'stream', messages: stream(call.progressToken, output, reply, signal) } : first
}

/**
 * Output as it is printed, then the answer; a cancelled call has none, as its client no longer knows the request.
 * https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation
 */
async function* stream(
  progressToken: string | number | undefined,
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
