import { Refusal } from '../../base/errors.ts'
import { type LogLevel, logLevels } from '../../tools/request-context.ts'
import { readsEvents } from '../accept.ts'
import { type LegacyEra, latestLegacyVersion, toLegacyVersion } from '../era.ts'
import type { HeaderOf, McpContext, McpReply, StreamReply } from '../handle.ts'
import { instructionsFor } from '../instructions.ts'
import { answerBody, type JsonRpcEndpoint } from '../json-rpc/answer-body.ts'
import { type JsonReply, resultReply } from '../json-rpc/encode.ts'
import { isObject, isRequestId, type Notification, own, type Params, type Request } from '../json-rpc/message.ts'
import { complete, featuresOf, isListMethod, isServed, listResult, OfferCache, refuseCursor } from '../methods.ts'
import { invalidParam, stringParam } from '../params.ts'
import { serverInfo } from '../server-info.ts'
import { withTraceContext } from '../trace-context.ts'
import { legacyError } from './encode.ts'
import { handleCall, type RequestScope } from './handle-call.ts'
import type { Session } from './sessions.ts'

/** Each message of a batch costs as much as a request of its own; clients send few at once. */
const maxBatch = 16

/**
 * Answers one body of the versions 2024-11-05 to 2025-11-25.
 * @throws Refusal `invalid_request` for a batch that cannot be answered, `session_unknown`.
 */
export async function answerLegacy(
  era: LegacyEra,
  body: unknown,
  header: HeaderOf,
  context: McpContext,
): Promise<McpReply> {
  const sessionId = header('mcp-session-id')
  // Some clients send session ids of other servers. Only an id of the form that this server issues can be one of its own.
  const session = sessionId?.startsWith('ses_') ? context.sessions.find(context.caller.keyId, sessionId) : undefined
  if (Array.isArray(body) && era.version > '2025-03-26') {
    throw new Refusal('invalid_request', { problem: `version ${era.version} has no batches` })
  }
  return answerBody(body, legacyEndpoint({ era, session, readsEvents: readsEvents(header) }, context))
}

/** How a message of these versions is answered. */
export const legacyEndpoint = (scope: RequestScope, context: McpContext): JsonRpcEndpoint<StreamReply> => ({
  maxBatch,
  request: (request, isInBatch) => answerRequest(request, scope, isInBatch, context),
  notification: (notification) => receiveNotification(notification, context),
  response: (message) => {
    scope.session?.receiveResponse(message)
    return { kind: 'empty', status: 202 }
  },
  invalid: (id, refusal) => ({ ...legacyError(id, refusal, context.log), status: refusal.row.http }),
})

/** Cancels a call. Other notifications have no effect. */
function receiveNotification({ method, params }: Notification, { calls, caller }: McpContext): void {
  const id = own(params, 'requestId')
  if (method === 'notifications/cancelled' && isRequestId(id)) calls.cancel(caller.keyId, id)
}

/** Never rejects. */
async function answerRequest(
  request: Request,
  scope: RequestScope,
  isInBatch: boolean,
  context: McpContext,
): Promise<JsonReply | StreamReply> {
  const { id, method, params } = request
  const { offer, caller, results } = context
  try {
    if (!isServed(method, offer)) throw new Refusal('method_not_found', { method: method.slice(0, 128) })
    if (isListMethod(method)) {
      refuseCursor(params)
      return resultReply(
        id,
        cache.get(offer, method, results, () => JSON.stringify(listResult(method, offer, results))),
      )
    }
    switch (method) {
      case 'initialize':
        if (isInBatch) throw new Refusal('invalid_request', { problem: 'initialize cannot be part of a batch' })
        return initialize(request, context)
      case 'ping':
        return resultReply(id, '{}')
      case 'completion/complete':
        return toReply(request, await complete(caller, params, offer))
      case 'tools/call':
      case 'prompts/get':
      case 'resources/read':
        return await handleCall(
          { id, method, params },
          isInBatch ? { ...scope, readsEvents: false } : scope,
          withTraceContext(context, method, params),
        )
      case 'logging/setLevel':
        return toReply(request, setLevel(params, scope.session))
      case 'resources/subscribe':
      case 'resources/unsubscribe':
        return toReply(request, subscribe(method, params, scope.session))
      default:
        throw new Refusal('method_not_found', { method: method.slice(0, 128) })
    }
  } catch (error) {
    return legacyError(id, error, context.log)
  }
}

const cache = new OfferCache()

const toReply = ({ id }: Request, result: object): JsonReply => resultReply(id, JSON.stringify(result))

const lengthOf = (texts: ReadonlySet<string>): number => [...texts].reduce((sum, text) => sum + text.length, 0)

/** Largest JSON text of the capabilities that a session keeps; those of usual clients have a few hundred characters. */
const maxCapabilitiesLength = 16_384

function requireSmall(capabilities: Params): Params {
  if (JSON.stringify(capabilities).length <= maxCapabilitiesLength) return capabilities
  const problem = `must have at most ${maxCapabilitiesLength} characters as JSON`
  throw new Refusal('invalid_argument', { field: 'capabilities', problem })
}

/** Answers `initialize`, which clients may omit. The server remembers it only if the client requested a session. */
function initialize(request: Request, context: McpContext): JsonReply & { sessionId?: string } {
  const { params } = request
  const { serverVersion, caller, offer, wantsSession, sessions } = context
  const version = toLegacyVersion(own(params, 'protocolVersion')) ?? latestLegacyVersion
  const capabilities = own(params, 'capabilities')
  const session = wantsSession
    ? sessions.open(caller.keyId, isObject(capabilities) ? requireSmall(capabilities) : {})
    : undefined
  const reply = toReply(request, {
    protocolVersion: version,
    capabilities: capabilitiesFor(context, session !== undefined),
    serverInfo: serverInfo(serverVersion),
    instructions: instructionsFor(offer, caller.profile),
  })
  return session ? { ...reply, sessionId: session.id } : reply
}

/** Returns the capabilities of the server. Those that need a session are declared only in one. */
function capabilitiesFor({ offer, changes: { kinds } }: McpContext, isInSession: boolean): object {
  const { prompts, resources, completions } = featuresOf(offer)
  return {
    logging: {},
    tools: { listChanged: isInSession && kinds.tools },
    ...(prompts && { prompts: { listChanged: isInSession && kinds.prompts } }),
    ...(resources && {
      resources: { listChanged: isInSession && kinds.resources, subscribe: isInSession && kinds.resource },
    }),
    ...(completions && { completions: {} }),
  }
}

/** Sets the log level of a session. Without one the level is checked and not kept. @throws Refusal `invalid_argument`. */
function setLevel(params: Params, session: Session | undefined): object {
  const level = own(params, 'level')
  if (!logLevels.some((known) => known === level)) throw invalidParam('level', `must be one of ${logLevels.join(', ')}`)
  if (session) session.logLevel = level as LogLevel
  return {}
}

/** Subscriptions of one session. */
const maxSubscriptions = 256
/** Length of all URIs that one session subscribes to. */
const maxSubscribedLength = 65_536

/** @throws Refusal `invalid_argument`, `method_not_found` without a session. */
function subscribe(
  method: 'resources/subscribe' | 'resources/unsubscribe',
  params: Params,
  session: Session | undefined,
): object {
  if (!session) throw new Refusal('method_not_found', { method })
  const uri = stringParam(params, 'uri')
  if (method === 'resources/unsubscribe') session.subscriptions.delete(uri)
  else if (lengthOf(session.subscriptions) + uri.length > maxSubscribedLength)
    throw new Refusal('invalid_argument', {
      field: 'uri',
      problem: `exceeds the ${maxSubscribedLength} characters that the subscriptions of a session can have`,
    })
  else if (session.subscriptions.size < maxSubscriptions) session.subscriptions.add(uri)
  else throw invalidParam('uri', `exceeds the limit of ${maxSubscriptions} subscriptions in one session`)
  return {}
}
