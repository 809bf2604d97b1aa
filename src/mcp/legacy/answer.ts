import { Refusal } from '../../base/errors.ts'
import { type LegacyVersion, latestLegacyVersion, toLegacyVersion } from '../era.ts'
import type { McpContext, McpHeaders, McpReply } from '../handle.ts'
import { type Message, own, type Params, resultText, toMessage } from '../json-rpc.ts'
import { errorReply } from './codec.ts'
import { callTool, type ToolCall } from './tools-call.ts'

type Request = Extract<Message, { kind: 'request' }>
type JsonReply = Extract<McpReply, { kind: 'json' }>

/** A batch costs as much as its calls; nobody sends more than a few at once. */
const maxBatch = 16

/** Answers one body of the versions 2024-11-05 to 2025-11-25. */
export async function answerLegacy(
  version: LegacyVersion,
  headers: McpHeaders,
  body: unknown,
  context: McpContext,
): Promise<McpReply> {
  if (Array.isArray(body)) return answerBatch(version, body, context)
  const message = toMessage(body)
  switch (message.kind) {
    case 'response':
      return { kind: 'empty', status: 202 }
    case 'notification':
      return takeNotification(message.method, message.params, context)
    case 'invalid':
      return { ...errorReply(message.id, message.refusal, context.log), status: message.refusal.row.http }
    case 'request':
      return answerRequest(version, message, readsEvents(headers), context)
  }
}

/** Batches exist in 2025-03-26 and before only; `initialize` is never part of one. */
async function answerBatch(version: LegacyVersion, items: unknown[], context: McpContext): Promise<McpReply> {
  if (version > '2025-03-26') throw new Refusal('invalid_request', { problem: `version ${version} has no batches` })
  if (items.length === 0) throw new Refusal('invalid_request', { problem: 'a batch must not be empty' })
  if (items.length > maxBatch) {
    throw new Refusal('invalid_request', { problem: `a batch holds at most ${maxBatch} messages, not ${items.length}` })
  }
  const replies = await Promise.all(items.map((item) => answerItem(version, toMessage(item), context)))
  const bodies = replies.filter((reply) => reply.kind === 'json').map((reply) => reply.body)
  if (bodies.length === 0) return { kind: 'empty', status: 202 }
  return { kind: 'json', status: 200, body: `[${bodies.join(',')}]` }
}

async function answerItem(version: LegacyVersion, message: Message, context: McpContext): Promise<McpReply> {
  switch (message.kind) {
    case 'response':
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
      return answerRequest(version, message, false, context)
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

async function answerRequest(
  version: LegacyVersion,
  request: Request,
  eventsRead: boolean,
  context: McpContext,
): Promise<McpReply> {
  try {
    switch (request.method) {
      case 'initialize':
        return result(request, JSON.stringify(initialize(request.params, context)))
      case 'ping':
        return result(request, '{}')
      case 'tools/list':
        return result(request, listTools(request.params, context))
      case 'tools/call':
        return await callTool(toToolCall(request, version, eventsRead), context)
      default:
        throw new Refusal('method_not_found', { method: request.method.slice(0, 128) })
    }
  } catch (error) {
    return errorReply(request.id, error, context.log)
  }
}

const result = ({ id }: Request, resultJson: string): JsonReply => ({
  kind: 'json',
  status: 200,
  body: resultText(id, resultJson),
})

/** Accepted, never required: nothing of it is remembered. */
function initialize(params: Params, { serverVersion, caller, offer }: McpContext): object {
  return {
    protocolVersion: toLegacyVersion(own(params, 'protocolVersion')) ?? latestLegacyVersion,
    capabilities: { tools: { listChanged: false } },
    serverInfo: { name: 'glovebox', title: 'Glovebox', version: serverVersion },
    instructions: instructionsFor(
      offer.listings.map(({ name }) => name),
      caller.profile.languages,
    ),
  }
}

function instructionsFor(tools: readonly string[], languages: readonly string[]): string {
  const use = tools.includes('sandbox_execute')
    ? `Use sandbox_execute to run ${languages.join(', ')} code; each call starts in a fresh sandbox without network.`
    : 'No tools are shown with the toolsets asked for.'
  return `Glovebox runs code for AI agents in real isolation. ${use}`
}

/** All tools fit one page, so no cursor was ever given out. */
function listTools(params: Params, { offer }: McpContext): string {
  const cursor = own(params, 'cursor')
  if (cursor !== undefined && cursor !== '') {
    throw new Refusal('invalid_argument', { field: 'cursor', problem: 'was not given out by this server' })
  }
  return offer.listJson
}

function toToolCall({ id, params }: Request, version: LegacyVersion, eventsRead: boolean): ToolCall {
  const name = own(params, 'name')
  if (typeof name !== 'string') {
    throw new Refusal('invalid_argument', { field: 'name', problem: 'must be a string that names a tool' })
  }
  const given = own(params, 'arguments') ?? {}
  return { id, version, name, given, readsEvents: eventsRead, progressToken: progressTokenOf(params) }
}

const readsEvents = ({ accept }: McpHeaders): boolean => (accept ?? '').toLowerCase().includes('text/event-stream')

function progressTokenOf(params: Params): string | number | undefined {
  const meta = own(params, '_meta')
  const token = typeof meta === 'object' && meta !== null ? own(meta as Params, 'progressToken') : undefined
  return typeof token === 'string' || typeof token === 'number' ? token : undefined
}
