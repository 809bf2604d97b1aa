import { AsyncQueue } from '../base/async-queue.ts'
import type { StreamReply } from './handle.ts'
import type { JsonReply } from './json-rpc/encode.ts'

/** Sends messages to the client while its request is in progress. */
export interface ResponseChannel {
  /** Sends a message before the response. Resolves when it was taken, at once if the client reads no events. */
  send(message: string): Promise<void>
  /** Starts the response as a stream, if the client reads events. */
  startStream(): void
}

export interface RespondOptions {
  /** The client reads server-sent events. */
  readsEvents: boolean
  /** A client that reads events receives the head of a stream after this time. */
  streamAfterMs: number
  /** Aborts when the client no longer expects the response, which is then not sent. */
  abandoned: AbortSignal
}

/**
 * Answers one request: with plain JSON if the work is quick and sends no messages, otherwise with a stream of messages
 * that ends with the response. The work continues when the client stops reading.
 * @param work never rejects.
 */
export async function respond(
  { readsEvents, streamAfterMs, abandoned }: RespondOptions,
  work: (channel: ResponseChannel) => Promise<JsonReply>,
): Promise<JsonReply | StreamReply> {
  const messages = new AsyncQueue<string>({ capacity: 1 })
  const started = Promise.withResolvers<'stream'>()
  const startStream = () => {
    if (readsEvents) started.resolve('stream')
  }
  const send = async (message: string): Promise<void> => {
    if (!readsEvents) return
    startStream()
    await messages.send(message)
  }
  const reply = work({ send, startStream })
  const timer = readsEvents ? setTimeout(startStream, streamAfterMs) : undefined
  const first = await Promise.race([started.promise, reply])
  clearTimeout(timer)
  if (first !== 'stream') {
    messages.discard()
    return first
  }
  void reply.finally(() => messages.close())
  return { kind: 'stream', messages: streamOf(messages, reply, abandoned) }
}

async function* streamOf(
  messages: AsyncQueue<string>,
  reply: Promise<JsonReply>,
  abandoned: AbortSignal,
): AsyncGenerator<string, void, undefined> {
  yield* messages
  const { body } = await reply
  if (!abandoned.aborted) yield body
}
