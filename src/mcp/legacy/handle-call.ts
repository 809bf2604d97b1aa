import { Refusal } from '../../base/errors.ts'
import { type LogLevel, logLevels } from '../../tools/request-context.ts'
import type { Progress, ToolContext } from '../../tools/tool.ts'
import type { LegacyEra } from '../era.ts'
import type { McpContext, StreamReply } from '../handle.ts'
import { encodeNotification, type JsonReply, resultReply } from '../json-rpc/encode.ts'
import { own } from '../json-rpc/message.ts'
import { type CallRequest, callTool, getPrompt, readResource } from '../methods.ts'
import { progressTokenOf } from '../params.ts'
import { ProgressEncoder } from '../progress-encoder.ts'
import { type ResponseChannel, respond } from '../respond.ts'
import { basicToolContext, noCapabilities } from '../tool-context.ts'
import { toToolErrorResult } from '../tool-errors.ts'
import { downgradeContent } from './content.ts'
import { legacyError } from './encode.ts'
import type { Session } from './sessions.ts'

/** What the messages of one HTTP request share. */
export interface RequestScope {
  era: LegacyEra
  session: Session | undefined
  readsEvents: boolean
}

/** The level of a client that has no session in which to set another. */
const defaultLogLevel: LogLevel = 'info'

/**
 * Answers a request that can send notifications while it is in progress. In these versions a disconnect does not cancel
 * the work; only `notifications/cancelled` does.
 * https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation
 */
export async function handleCall(
  call: CallRequest,
  scope: RequestScope,
  context: McpContext,
): Promise<JsonReply | StreamReply> {
  const { caller, calls, log, streamAfterMs } = context
  const { signal, end } = calls.start(caller.keyId, call.id)
  // The client no longer knows a request that it has cancelled, so the stream then ends without a response.
  return respond({ readsEvents: scope.readsEvents, streamAfterMs, abandoned: signal }, async (channel) => {
    try {
      const result = await execute(call, scope, toToolContext(call, scope, channel, signal, context), context)
      return resultReply(call.id, JSON.stringify(result))
    } catch (error) {
      return legacyError(call.id, error, log)
    } finally {
      end()
    }
  })
}

function execute(
  { method, params }: CallRequest,
  { era }: RequestScope,
  toolContext: ToolContext,
  { caller, offer, results, requireTool }: McpContext,
): Promise<object> {
  switch (method) {
    case 'tools/call': {
      requireTool(own(params, 'name'))
      const result = callTool(caller, params, offer, toolContext, results).then((full) =>
        downgradeContent(era.version, full),
      )
      // Invalid arguments are results that the model sees since 2025-11-25, and JSON-RPC errors before.
      // https://modelcontextprotocol.io/specification/2025-11-25/server/tools#error-handling
      return era.version >= '2025-11-25' ? result.catch(toToolErrorResult) : result
    }
    case 'prompts/get':
      return getPrompt(caller, params, offer, toolContext)
    case 'resources/read':
      return readResource(caller, params, offer, toolContext)
  }
}

function toToolContext(
  { params }: CallRequest,
  { session, readsEvents }: RequestScope,
  channel: ResponseChannel,
  signal: AbortSignal,
  context: McpContext,
): ToolContext {
  const token = progressTokenOf(own(params, '_meta'))
  const encoder = new ProgressEncoder(token)
  return {
    ...basicToolContext(context, signal),
    client: session?.client ?? noCapabilities,
    ask: async (requests) => {
      if (session && readsEvents) return session.ask(requests, channel.send, signal)
      noCapabilities.require(requests)
      throw new Refusal('capability_missing', { capability: 'a session, and reading events' })
    },
    log: async (level, data) => {
      const isWanted = logLevels.indexOf(level) >= logLevels.indexOf(session?.logLevel ?? defaultLogLevel)
      if (isWanted) await channel.send(encodeNotification('notifications/message', { level, data }))
    },
    ...(readsEvents &&
      token !== undefined && {
        started: () => channel.startStream(),
        progress: (progress: Progress) => channel.send(encoder.encode(progress)),
      }),
  }
}
