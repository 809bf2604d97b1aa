import { Refusal } from '../../base/errors.ts'
import { type LogLevel, logLevels } from '../../tools/request-context.ts'
import { readsEvents } from '../accept.ts'
import { type Era, latestLegacyVersion, toLegacyVersion } from '../era.ts'
import type { HeaderOf, McpContext, McpReply } from '../handle.ts'
import { instructionsFor } from '../instructions.ts'
import { isObject, type Message, own, type Params, resultText, toMessage } from '../json-rpc.ts'
import { complete, featuresOf, isList, isServed, list, OfferTexts, refuseCursor } from '../methods.ts'
import { serverInfo } from '../server-info.ts'
import { withTrace } from '../trace-context.ts'
import { errorReply } from './codec.ts'
import { converse } from './handle-call.ts'
import type { Session } from './sessions.ts'

type Request = Extract<Message, { kind: 'request' }>
type JsonReply = Extract<McpReply, { kind: 'json' }>
type LegacyEra = Extract<Era, { kind: 'legacy' }>

/** What every message of one body shares. */
interface RequestScope {
  era: LegacyEra
  session: Session | undefined
  eventsRead: boolean
}

/** A batch costs as much as its calls; nobody sends more than a few at once. */
const maxBatch = 16

/** Answers one body of the versions 2024-11-05 to 2025-11-25. */
export async function answerLegacy(
  era: LegacyEra,
  body: unknown,
  header: HeaderOf,
  context: McpContext,
): Promise<McpReply> {
  const sessionId = header('mcp-session-id')
  // Clients of other servers send sessions of theirs; they mean something only to who asked for one here.
  const session = sessionId?.startsWith('ses_') ? context.sessions.find(context.caller.keyId, sessionId) : undefined
  const around: RequestScope = { era, session, eventsRead: readsEvents(header) }
  if (Array.isArray(body)) return answerBatch(body, around, context)
  const message = toMessage(body)
  switch (message.kind) {
    case 'response':
      session?.take(body)
      return { kind: 'empty', status: 202 }
    case 'notification':
      return takeNotification(message.method, message.params, context)
    case 'invalid':
      return { ...errorReply(message.id, message.refusal, context.log), status: message.refusal.row.http }
    case 'request':
      return answerRequest(message, around, withTrace(context, message.method, message.params))
  }
}

/** Batches exist in 2025-03-26 and before only; `initialize` is never part of one. */
async function answerBatch(items: unknown[], around: RequestScope, context: McpContext): Promise<McpReply> {
  const { version } = around.era
  if (version > '2025-03-26') throw new Refusal('invalid_request', { problem: `version ${version} has no batches` })
  if (items.length === 0) throw new Refusal('invalid_request', { problem: 'a batch must not be empty' })
  if (items.length > maxBatch) {
    throw new Refusal('invalid_request', { problem: `a batch holds at most ${maxBatch} messages, not ${items.length}` })
  }
  const inside = { ...around, eventsRead: false }
  const replies = await Promise.all(items.map((item) => answerItem(item, inside, context)))
  const bodies = replies.filter((reply) => reply.kind === 'json').map((reply) => reply.body)
  if (bodies.length === 0) return { kind: 'empty', status: 202 }
  return { kind: 'json', status: 200, body: `[${bodies.join(',')}]` }
}

async function answerItem(item: unknown, around: RequestScope, context: McpContext): Promise<McpReply> {
  const message = toMessage(item)
  switch (message.kind) {
    case 'response':
      around.session?.take(item)
      return { kind: 'empty', status: 202 }
    case 'notification':
      return takeNotification(message.method, message.params, context)
    case 'invalid':
      return errorReply(message.id, message.refusal, context.log)
    case 'request':
      if (message.method === 'initialize') {
        const refusal = new Refusal('invalid_request', { problem: 'initialize cannot be part of a batch' })
        return errorReply(message.id, refusal, context.log)
      }
      return answerRequest(message, around, context)
  }
}

/** Everything is taken; only a cancellation means something. */
function takeNotification(method: string, params: Params, context: McpContext): McpReply {
  const id = own(params, 'requestId')
  if (method === 'notifications/cancelled' && (typeof id === 'string' || typeof id === 'number')) {
    context.calls.cancel(context.caller.keyId, id)
  }
  return { kind: 'empty', status: 202 }
}

async function answerRequest(request: Request, around: RequestScope, context: McpContext): Promise<McpReply> {
  const { method, params } = request
  const { offer, caller } = context
  try {
    if (!isServed(method, offer)) throw new Refusal('method_not_found', { method: method.slice(0, 128) })
    if (isList(method)) {
      refuseCursor(params)
      return answered(
        request,
        texts.get(offer, method, () => JSON.stringify(list(method, offer))),
      )
    }
    switch (method) {
      case 'initialize':
        return initialize(request, context)
      case 'ping':
        return result(request, {})
      case 'completion/complete':
        return result(request, await complete(caller, params, offer))
      case 'tools/call':
      case 'prompts/get':
      case 'resources/read':
        return await converse({ ...request, method }, around, context)
      case 'logging/setLevel':
        return result(request, setLevel(params, around.session))
      case 'resources/subscribe':
      case 'resources/unsubscribe':
        return result(request, subscribe(method, params, around.session))
      default:
        throw new Refusal('method_not_found', { method: method.slice(0, 128) })
    }
  } catch (error) {
    return errorReply(request.id, error, context.log)
  }
}

const texts = new OfferTexts()

const result = (request: Request, value: object): JsonReply => answered(request, JSON.stringify(value))

const answered = ({ id }: Request, resultJson: string): JsonReply => ({
  kind: 'json',
  status: 200,
  body: resultText(id, resultJson),
})

/** Accepted, never required: nothing of it is remembered, unless the client asked for a session. */
function initialize(request: Request, context: McpContext): JsonReply {
  const { params } = request
  const { serverVersion, caller, offer, wantsSession, sessions } = context
  const version = toLegacyVersion(own(params, 'protocolVersion')) ?? latestLegacyVersion
  const capabilities = own(params, 'capabilities')
  const session = wantsSession ? sessions.open(caller.keyId, isObject(capabilities) ? capabilities : {}) : undefined
  const answer = result(request, {
    protocolVersion: version,
    capabilities: capabilitiesFor(context, session !== undefined),
    serverInfo: serverInfo(serverVersion),
    instructions: instructionsFor(offer, caller.profile),
  })
  return session ? { ...answer, sessionId: session.id } : answer
}

/** What needs a session is not promised without one. */
function capabilitiesFor({ offer, changes: { kinds } }: McpContext, inSession: boolean): object {
  const { prompts, resources, completions } = featuresOf(offer)
  return {
    logging: {},
    tools: { listChanged: inSession && kinds.tools },
    ...(prompts && { prompts: { listChanged: inSession && kinds.prompts } }),
    ...(resources && {
      resources: { listChanged: inSession && kinds.resources, subscribe: inSession && kinds.resource },
    }),
    ...(completions && { completions: {} }),
  }
}

/** Without a session there is nowhere to remember it, and what is told then is little. */
function setLevel(params: Params, session: Session | undefined): object {
  const level = own(params, 'level')
  if (!logLevels.some((known) => known === level)) {
    throw new Refusal('invalid_argument', { field: 'level', problem: `must be one of ${logLevels.join(', ')}` })
  }
  if (session) session.logLevel = level as LogLevel
  return {}
}

/** More than one client can mean. */
const maxSubscriptions = 256

function subscribe(
  method: 'resources/subscribe' | 'resources/unsubscribe',
  params: Params,
  session: Session | undefined,
): object {
  if (!session) throw new Refusal('method_not_found', { method })
  const uri = own(params, 'uri')
  if (typeof uri !== 'string') throw new Refusal('invalid_argument', { field: 'uri', problem: 'must be a string' })
  if (method === 'resources/unsubscribe') session.subscriptions.delete(uri)
  else if (session.subscriptions.size < maxSubscriptions) session.subscriptions.add(uri)
  else
    throw new Refusal('invalid_argument', { field: 'uri', problem: `is one more than the ${maxSubscriptions} allowed` })
  return {}
}
