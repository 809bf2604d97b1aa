import { randomUUID } from 'node:crypto'
import { AsyncQueue } from '../../base/async-queue.ts'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { fault } from '../../observe/log.ts'
import { ActiveCalls } from '../active-calls.ts'
import { type LegacyVersion, latestLegacyVersion, toLegacyVersion } from '../era.ts'
import type { McpContext, McpReply } from '../handle.ts'
import { answerBody } from '../json-rpc/answer-body.ts'
import { isObject, own } from '../json-rpc/message.ts'
import { legacyEndpoint } from './answer.ts'
import { notificationStream } from './notification-stream.ts'
import { type Session, Sessions } from './sessions.ts'

/** Messages of one connection that are answered at once; clients send few. */
const messagesMax = 32
/** Answers that wait for a client to read them, in characters: two of the largest images. */
const unreadMax = 16 * 1024 * 1024

/** What a connection needs from each request to answer its message. */
export type EventContext = Omit<McpContext, 'calls' | 'sessions' | 'wantsSession' | 'disconnected'>

/**
 * One connection of the transport of 2024-11-05: answers are sent as events of a stream that the client has opened, not as
 * responses to its requests. https://modelcontextprotocol.io/specification/2024-11-05/basic/transports
 */
export class EventSession {
  /** Unguessable: it is a part of the address to which the client sends its messages. */
  readonly id = randomUUID()
  readonly keyId: string
  /** Called with the number of characters that the client has not read. */
  onUnread: (characters: number) => void = () => {}
  /** Called when the client reads too slowly: what waits for it is dropped with its connection. */
  onOverflow: () => void = () => {}
  readonly #queue: AsyncQueue<string>
  readonly #calls = new ActiveCalls()
  readonly #sessions = new Sessions()
  readonly #closed = new AbortController()
  #session: Session | undefined
  #version: LegacyVersion = latestLegacyVersion
  #unread = 0
  #active = 0
  #usedAtMs = monotonicMs()

  constructor(keyId: string) {
    this.keyId = keyId
    this.#queue = new AsyncQueue<string>({
      capacity: unreadMax,
      sizeOf: ({ length }) => length,
      onTake: ({ length }) => this.#count(-length),
    })
  }

  /** The texts of the events, until the connection ends. */
  get messages(): AsyncIterable<string> {
    return this.#queue
  }

  /** Messages that are being answered. */
  get active(): number {
    return this.#active
  }

  get isClosed(): boolean {
    return this.#closed.signal.aborted
  }

  /** Time since the last message; 0 while one is being answered. */
  get idleMs(): number {
    return this.#active > 0 ? 0 : monotonicMs() - this.#usedAtMs
  }

  /**
   * Answers a message on the stream. Returns before the answer.
   * @throws Refusal `messages_full`.
   */
  receive(body: unknown, context: EventContext): void {
    if (this.#active >= messagesMax) throw new Refusal('messages_full', { limit: messagesMax })
    this.#active += 1
    this.#usedAtMs = monotonicMs()
    this.#answer(body, context)
      .catch((error: unknown) => fault(error, context.log))
      .finally(() => {
        this.#active -= 1
        this.#usedAtMs = monotonicMs()
      })
  }

  /** Ends the connection and cancels its calls: their answers could not be sent. Can be called twice. */
  close(): void {
    if (this.isClosed) return
    this.#closed.abort()
    this.#calls.cancelAll()
    this.#queue.close()
  }

  async #answer(body: unknown, given: EventContext): Promise<void> {
    const context: McpContext = {
      ...given,
      calls: this.#calls,
      sessions: this.#sessions,
      wantsSession: true,
      disconnected: () => this.#closed.signal,
    }
    const era = { kind: 'legacy', version: this.#version, claimed: true } as const
    const scope = { era, session: this.#session, readsEvents: true }
    const reply: McpReply = await answerBody(body, legacyEndpoint(scope, context))
    switch (reply.kind) {
      case 'empty':
        return
      case 'stream':
        for await (const message of reply.messages) this.#send(message)
        return
      case 'json':
        this.#send(reply.body)
        if ('sessionId' in reply && reply.sessionId !== undefined) this.#begin(body, reply.sessionId, context)
    }
  }

  /** Begins the session that `initialize` has opened, with its notifications of changes. */
  #begin(body: unknown, sessionId: string, context: McpContext): void {
    const params = isObject(body) ? own(body, 'params') : undefined
    this.#version =
      toLegacyVersion(isObject(params) ? own(params, 'protocolVersion') : undefined) ?? latestLegacyVersion
    const isFirst = this.#session === undefined
    this.#session = this.#sessions.find(this.keyId, sessionId)
    if (isFirst) void this.#notify(this.#session, context).catch((error: unknown) => fault(error, context.log))
  }

  async #notify(session: Session, context: McpContext): Promise<void> {
    for await (const message of notificationStream(session, context)) this.#send(message)
  }

  /** A client that reads too slowly loses its connection: messages cannot be left out. */
  #send(message: string): void {
    if (this.isClosed) return
    this.#count(message.length)
    if (this.#queue.push(message)) return
    this.close()
    this.onOverflow()
  }

  #count(characters: number): void {
    this.#unread += characters
    this.onUnread(this.#unread)
  }
}

/** The connections of this process. */
export class EventSessions {
  readonly #open = new Map<string, EventSession>()

  get size(): number {
    return this.#open.size
  }

  open(keyId: string): EventSession {
    const session = new EventSession(keyId)
    this.#open.set(session.id, session)
    return session
  }

  /** @throws Refusal `message_session_missing`, `message_session_unknown`, also for a connection of another key. */
  find(keyId: string, id: string | undefined): EventSession {
    if (id === undefined || id === '') throw new Refusal('message_session_missing')
    const session = this.#open.get(id)
    if (session === undefined || session.isClosed || session.keyId !== keyId)
      throw new Refusal('message_session_unknown')
    return session
  }

  /** Ends a connection and forgets it. */
  end(session: EventSession): void {
    session.close()
    this.#open.delete(session.id)
  }
}
