import { Refusal } from '../../base/errors.ts'
import { readsEvents } from '../accept.ts'
import { modernVersions } from '../era.ts'
import type { HeaderOf, McpContext, McpReply, StreamReply } from '../handle.ts'
import { instructionsFor } from '../instructions.ts'
import { answerBody, type JsonRpcEndpoint } from '../json-rpc/answer-body.ts'
import { type JsonReply, resultReply } from '../json-rpc/encode.ts'
import type { Request } from '../json-rpc/message.ts'
import { complete, featuresOf, isListMethod, isServed, listResult, OfferCache, refuseCursor } from '../methods.ts'
import { withTraceContext } from '../trace-context.ts'
import { modernError, ResultEncoder } from './encode.ts'
import { readEnvelope } from './envelope.ts'
import { handleCall } from './handle-call.ts'
import { listen } from './listen.ts'
import { cancelTask, getTask, requireTasks, tasksExtension, updateTask } from './tasks.ts'

/** Answers one body of 2026-07-28: https://modelcontextprotocol.io/specification/2026-07-28 */
export const answerModern = (body: unknown, header: HeaderOf, context: McpContext): Promise<McpReply> =>
  answerBody(body, modernEndpoint(header, context))

const modernEndpoint = (header: HeaderOf, context: McpContext): JsonRpcEndpoint<StreamReply> => ({
  maxBatch: 0,
  request: (request) =>
    answerRequest(request, header, withTraceContext(context, request.method, request.params)).catch((error: unknown) =>
      modernError(request.id, error, context.log),
    ),
  notification: () => {},
  response: () =>
    modernError(null, new Refusal('invalid_request', { problem: 'this server sends no requests' }), context.log),
  invalid: (id, refusal) => modernError(id, refusal, context.log),
})

async function answerRequest(
  request: Request,
  header: HeaderOf,
  context: McpContext,
): Promise<JsonReply | StreamReply> {
  const { id, method, params } = request
  const { offer, caller, serverVersion, results } = context
  const envelope = readEnvelope(method, params, header, offer)
  if (!isServed(method, offer)) throw new Refusal('method_not_found', { method: method.slice(0, 128) })
  const encoder = encoderFor(serverVersion)
  if (isListMethod(method)) {
    refuseCursor(params)
    return resultReply(
      id,
      cache.get(offer, method, results, () => encoder.cacheable(listResult(method, offer, results))),
    )
  }
  switch (method) {
    case 'server/discover':
      return resultReply(
        id,
        cache.get(offer, method, results, () => encoder.cacheable(discover(context))),
      )
    case 'completion/complete':
      return resultReply(id, encoder.complete(await complete(caller, params, offer)))
    case 'tools/call':
    case 'prompts/get':
    case 'resources/read':
      return handleCall({ id, method, params }, envelope, readsEvents(header), encoder, context)
    case 'subscriptions/listen':
      return listen(request, envelope, encoder, context)
    case 'tasks/get':
    case 'tasks/update':
    case 'tasks/cancel':
      requireTasks(envelope)
      return resultReply(id, encoder.complete(await taskMethods[method](params, context)))
    default:
      throw new Refusal('method_not_found', { method: method.slice(0, 128) })
  }
}

const taskMethods = { 'tasks/get': getTask, 'tasks/update': updateTask, 'tasks/cancel': cancelTask }

function discover({ offer, caller, changes: { kinds } }: McpContext): object {
  const { prompts, resources, completions } = featuresOf(offer)
  return {
    supportedVersions: modernVersions,
    capabilities: {
      logging: {},
      tools: { listChanged: kinds.tools },
      ...(prompts && { prompts: { listChanged: kinds.prompts } }),
      ...(resources && { resources: { listChanged: kinds.resources, subscribe: kinds.resource } }),
      ...(completions && { completions: {} }),
      extensions: { [tasksExtension]: {} },
    },
    instructions: instructionsFor(offer, caller.profile),
  }
}

const cache = new OfferCache()

let lastEncoder: { version: string; encoder: ResultEncoder } | undefined

function encoderFor(version: string): ResultEncoder {
  if (lastEncoder?.version !== version) lastEncoder = { version, encoder: new ResultEncoder(version) }
  return lastEncoder.encoder
}
