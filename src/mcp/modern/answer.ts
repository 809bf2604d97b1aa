import { Refusal } from '../../base/errors.ts'
import { readsEvents } from '../accept.ts'
import { modernVersions } from '../era.ts'
import type { HeaderOf, McpContext, McpReply } from '../handle.ts'
import { instructionsFor } from '../instructions.ts'
import { type Message, toMessage } from '../json-rpc.ts'
import { complete, featuresOf, isList, isServed, list, OfferTexts, refuseCursor } from '../methods.ts'
import { withTrace } from '../trace-context.ts'
import { errorReply, resultReply, Stamp } from './codec.ts'
import { type Envelope, readEnvelope } from './envelope.ts'
import { converse } from './handle-call.ts'
import { listen } from './listen.ts'
import { cancelTask, getTask, tasksExtension, updateTask } from './tasks.ts'

type Request = Extract<Message, { kind: 'request' }>

/** Answers one body of 2026-07-28: https://modelcontextprotocol.io/specification/2026-07-28 */
export async function answerModern(body: unknown, header: HeaderOf, context: McpContext): Promise<McpReply> {
  const message = toMessage(body)
  switch (message.kind) {
    case 'notification':
      return { kind: 'empty', status: 202 }
    case 'response':
      return errorReply(null, new Refusal('invalid_request', { problem: 'this server asks nothing' }), context.log)
    case 'invalid':
      return errorReply(message.id, message.refusal, context.log)
    case 'request':
      return answerRequest(message, header, withTrace(context, message.method, message.params)).catch(
        (error: unknown) => errorReply(message.id, error, context.log),
      )
  }
}

async function answerRequest(request: Request, header: HeaderOf, context: McpContext): Promise<McpReply> {
  const { id, method, params } = request
  const { offer, caller, serverVersion } = context
  const envelope = readEnvelope(method, params, header, offer)
  if (!isServed(method, offer)) throw new Refusal('method_not_found', { method: method.slice(0, 128) })
  const stamp = stampOf(serverVersion)
  if (isList(method)) {
    refuseCursor(params)
    const text = texts.get(offer, method, () => stamp.cacheable(list(method, offer)))
    return resultReply(id, text)
  }
  switch (method) {
    case 'server/discover':
      return resultReply(
        id,
        texts.get(offer, method, () => stamp.cacheable(discover(context))),
      )
    case 'completion/complete':
      return resultReply(id, stamp.complete(await complete(caller, params, offer)))
    case 'tools/call':
    case 'prompts/get':
    case 'resources/read':
      return converse({ ...request, method }, envelope, readsEvents(header), stamp, context)
    case 'subscriptions/listen':
      return listen(request, envelope, stamp, context)
    case 'tasks/get':
      return resultReply(id, stamp.complete(await getTask(params, tasksOf(envelope), context)))
    case 'tasks/update':
      return resultReply(id, stamp.complete(await updateTask(params, tasksOf(envelope), context)))
    case 'tasks/cancel':
      return resultReply(id, stamp.complete(await cancelTask(params, tasksOf(envelope), context)))
    default:
      throw new Refusal('method_not_found', { method: method.slice(0, 128) })
  }
}

/** @throws Refusal `capability_missing`: nobody who did not declare the extension has a task. */
function tasksOf({ client }: Envelope): true {
  if (!client.hasExtension(tasksExtension)) throw new Refusal('capability_missing', { capability: tasksExtension })
  return true
}

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

const texts = new OfferTexts()

let lastStamp: { version: string; stamp: Stamp } | undefined

function stampOf(version: string): Stamp {
  if (lastStamp?.version !== version) lastStamp = { version, stamp: new Stamp(version) }
  return lastStamp.stamp
}
