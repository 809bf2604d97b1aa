import type { McpReply } from './handle.ts'
import { Rendezvous } from './rendezvous.ts'

type JsonReply = Extract<McpReply, { kind: 'json' }>

/** The way to the client while its request is being answered. */
export interface Exchange {
  /** Sends a message ahead of the answer; resolves when it was taken. Dropped where the client reads no events. */
  send(message: string): Promise<void>
  /** From now on the answer is a stream, if the client reads events. */
  open(): void
}

export interface ExchangeTerms {
  /** The client reads server-sent events. */
  readsEvents: boolean
  /** Longest that a client which reads events waits for the head of its answer. */
  quietMs: number
  /** Aborts when nobody waits for the answer any more; it is then not sent. */
  abandoned: AbortSignal
}

/**
 * Answers one request: as plain JSON when that is all there is to say and it is said soon, otherwise as a stream of
 * messages that ends with the answer. The work goes on to its end, whoever stops reading.
 * @param work never rejects.
 */
export async function exchange(
  { readsEvents, quietMs, abandoned }: ExchangeTerms,
  work: (exchange: Exchange) => Promise<JsonReply>,
): Promise<McpReply> {
  const messages = new Rendezvous<string>()
  const opened = Promise.withResolvers<'stream'>()
  const open = () => {
    if (readsEvents) opened.resolve('stream')
  }
  let last: Promise<void> = Promise.resolve()
  const send = (message: string): Promise<void> => {
    if (!readsEvents) return Promise.resolve()
    open()
    last = last.then(() => messages.give(message))
    return last
  }
  const reply = work({ send, open })
  const quiet = readsEvents ? setTimeout(open, quietMs) : undefined
  const first = await Promise.race([opened.promise, reply])
  clearTimeout(quiet)
  if (first !== 'stream') {
    messages.leave()
    return first
  }
  void reply.finally(() => last.finally(() => messages.close()))
  return { kind: 'stream', messages: stream(messages, reply, abandoned) }
}

async function* stream(
  messages: Rendezvous<string>,
  reply: Promise<JsonReply>,
  abandoned: AbortSignal,
): AsyncGenerator<string, void, undefined> {
  for await (const message of messages) yield message
  const { body } = await reply
  if (!abandoned.aborted) yield body
}
