import { Refusal } from '../../base/errors.ts'
import type { EmptyReply, JsonReply } from './encode.ts'
import { type Notification, type Params, parseMessage, type Request, type RequestId } from './message.ts'

/**
 * What an endpoint that speaks JSON-RPC does with each kind of message. MCP has one for each of its two eras; another
 * protocol adds its own and calls `callTool` of `methods.ts` for the tools of a key.
 * @template Stream a reply of this protocol that is neither JSON nor empty.
 */
export interface JsonRpcEndpoint<Stream extends { kind: 'stream' } = never> {
  /** Largest number of messages in one batch; 0 where the protocol has no batches. */
  readonly maxBatch: number
  /** Answers a request. Never rejects, and never returns a stream in a batch. */
  request(request: Request, isInBatch: boolean): Promise<JsonReply | Stream>
  notification(notification: Notification): void
  /** Takes the answer to a request of this server. */
  response(message: Params): JsonReply | EmptyReply
  /** Answers what is not a message. */
  invalid(id: RequestId | null, refusal: Refusal): JsonReply
}

const accepted: EmptyReply = { kind: 'empty', status: 202 }

/**
 * Answers one body: a message, or a batch where the endpoint has them.
 * @param body the parsed JSON.
 * @throws Refusal `invalid_request` for a batch that is empty or too long.
 */
export async function answerBody<Stream extends { kind: 'stream' }>(
  body: unknown,
  endpoint: JsonRpcEndpoint<Stream>,
): Promise<JsonReply | EmptyReply | Stream> {
  const { maxBatch } = endpoint
  if (!Array.isArray(body) || maxBatch === 0) return answerMessage(body, endpoint, false)
  if (body.length === 0) throw new Refusal('invalid_request', { problem: 'a batch must not be empty' })
  if (body.length > maxBatch) {
    const problem = `a batch can contain at most ${maxBatch} messages, but this one contains ${body.length}`
    throw new Refusal('invalid_request', { problem })
  }
  const replies = await Promise.all(body.map((item) => answerMessage(item, endpoint, true)))
  const bodies = replies.flatMap((reply) => (reply.kind === 'json' ? [reply.body] : []))
  return bodies.length === 0 ? accepted : { kind: 'json', status: 200, body: `[${bodies.join(',')}]` }
}

async function answerMessage<Stream extends { kind: 'stream' }>(
  value: unknown,
  endpoint: JsonRpcEndpoint<Stream>,
  isInBatch: boolean,
): Promise<JsonReply | EmptyReply | Stream> {
  const message = parseMessage(value)
  switch (message.kind) {
    case 'request':
      return endpoint.request(message, isInBatch)
    case 'notification':
      endpoint.notification(message)
      return accepted
    case 'response':
      return endpoint.response(message.message)
    case 'invalid':
      return endpoint.invalid(message.id, message.refusal)
  }
}
