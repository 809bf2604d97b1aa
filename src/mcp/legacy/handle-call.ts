import { Refusal } from '../../base/errors.ts'
import { ClientCapabilities, type LogLevel, logLevels } from '../../tools/request-context.ts'
import type { Progress, ToolContext } from '../../tools/tool.ts'
import type { Era } from '../era.ts'
import type { McpContext, McpReply } from '../handle.ts'
import { isObject, notificationText, own, type Params, type RequestId, resultText } from '../json-rpc.ts'
import { callTool, getPrompt, readResource } from '../methods.ts'
import { ProgressSteps } from '../progress-steps.ts'
import { type Exchange, exchange } from '../respond.ts'
import { mendable } from '../tool-errors.ts'
import { errorReply } from './codec.ts'
import { asKnownIn } from './content.ts'
import type { Session } from './sessions.ts'

export interface Asked {
  id: RequestId
  method: 'tools/call' | 'prompts/get' | 'resources/read'
  params: Params
}

interface RequestScope {
  era: Extract<Era, { kind: 'legacy' }>
  session: Session | undefined
  eventsRead: boolean
}

/** Of a client without a session nothing is known. */
const unknownClient = new ClientCapabilities({})
/** Told where no session says otherwise. */
const defaultLogLevel: LogLevel = 'info'

/**
 * Answers a request during which there may be something to tell. A disconnect does not cancel in these versions: the
 * work goes on to its end either way, and only `notifications/cancelled` stops it.
 * https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation
 * @throws Refusal `unknown_tool`.
 */
export async function converse(asked: Asked, around: RequestScope, context: McpContext): Promise<McpReply> {
  const { caller, calls, log, quietMs } = context
  const { signal, end } = calls.open(caller.keyId, asked.id)
  // A cancelled call has no answer on a stream, as its client no longer knows the request.
  return exchange({ readsEvents: around.eventsRead, quietMs, abandoned: signal }, async (channel) => {
    try {
      const result = await work(asked, around, toolContext(asked, around, channel, signal, context), context)
      return { kind: 'json', status: 200, body: resultText(asked.id, JSON.stringify(result)) }
    } catch (error) {
      return errorReply(asked.id, error, log)
    } finally {
      end()
    }
  })
}

function work(
  { method, params }: Asked,
  { era }: RequestScope,
  own: ToolContext,
  { caller, offer }: McpContext,
): Promise<object> {
  switch (method) {
    case 'tools/call': {
      const called = callTool(caller, params, offer, own).then((result) => asKnownIn(era.version, result))
      // As results that a model sees since 2025-11-25, as JSON-RPC errors before.
      // https://modelcontextprotocol.io/specification/2025-11-25/server/tools#error-handling
      return era.version >= '2025-11-25' ? called.catch(mendable) : called
    }
    case 'prompts/get':
      return getPrompt(caller, params, offer, own)
    case 'resources/read':
      return readResource(caller, params, offer, own)
  }
}

function toolContext(
  { params }: Asked,
  { session, eventsRead }: RequestScope,
  channel: Exchange,
  signal: AbortSignal,
  { core, offer, baseUrl }: McpContext,
): ToolContext {
  const token = progressTokenOf(params)
  const steps = new ProgressSteps(token)
  const follows = eventsRead && token !== undefined
  return {
    core,
    baseUrl,
    offers: offer.has,
    signal,
    detached: true,
    client: session?.client ?? unknownClient,
    ask: async (requests) => {
      if (session && eventsRead) return session.ask(requests, channel.send, signal)
      unknownClient.require(requests)
      throw new Refusal('capability_missing', { capability: 'a session, and reading events' })
    },
    log: async (level, data) => {
      const wanted = logLevels.indexOf(level) >= logLevels.indexOf(session?.logLevel ?? defaultLogLevel)
      if (wanted) await channel.send(notificationText('notifications/message', { level, data }))
    },
    ...(follows && {
      started: () => channel.open(),
      progress: (progress: Progress) => channel.send(steps.next(progress)),
    }),
  }
}

function progressTokenOf(params: Params): string | number | undefined {
  const meta = own(params, '_meta')
  const token = isObject(meta) ? own(meta, 'progressToken') : undefined
  return typeof token === 'string' || typeof token === 'number' ? token : undefined
}
