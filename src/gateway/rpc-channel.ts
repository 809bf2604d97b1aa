import { PassThrough } from 'node:stream'
import { messageEvent } from './events.ts'
import { UpstreamProblem } from './failures.ts'

/** Maximum size of the messages that wait for one client, since all of them arrive on one stream. */
const unreadMaxBytes = 16 * 1024 * 1024

/** Names the request to which a notification of 2026-07-28 belongs. */
const subscriptionKey = 'io.modelcontextprotocol/subscriptionId'

/** A JSON-RPC message, as far as it is read here. */
export interface RpcMessage {
  id?: unknown
  method?: unknown
  params?: {
    _meta?: { progressToken?: unknown; [field: string]: unknown }
    progressToken?: unknown
    requestId?: unknown
    [field: string]: unknown
  }
  [field: string]: unknown
}

/** A request that waits for its response. */
interface Pending {
  /** ID and progress token of the client; those of the upstream are unique in the channel. */
  id: unknown
  progressToken: unknown
  body: PassThrough
}

export interface ChannelOptions {
  /** Why requests of the upstream to the client are refused; absent if they are passed on. */
  refusal?: string
  /** Whether several clients listen; otherwise a new listener replaces the earlier one. */
  isShared?: boolean
}

/** Sends a message to an upstream. */
export type SendMessage = (message: object) => Promise<void>

/**
 * The messages of one connection to an upstream that answers all requests in one stream: it gives requests unique IDs, and
 * returns each response, progress notification and request to the client that it belongs to.
 */
export class RpcChannel {
  readonly #options: ChannelOptions
  readonly #pending = new Map<string, Pending>()
  readonly #listeners = new Set<PassThrough>()
  #count = 0
  #problem: Error | undefined
  /** Number of messages that belong to no request, such as responses with an unknown ID. */
  strays = 0

  constructor(options: ChannelOptions) {
    this.#options = options
  }

  /** Why the channel has ended; `undefined` while it is open. */
  get problem(): Error | undefined {
    return this.#problem
  }

  /** Whether a request or a listener waits for messages. */
  get isBusy(): boolean {
    return this.#pending.size > 0 || this.#listeners.size > 0
  }

  /**
   * Sends a request.
   * @returns an event stream with its progress and its response, which ends after the response.
   * @throws what `send` throws; the problem of the channel if it has ended.
   */
  async request(message: RpcMessage, send: SendMessage, signal: AbortSignal): Promise<PassThrough> {
    if (this.#problem) throw this.#problem
    const own = `gb-${++this.#count}`
    const progressToken = message.params?._meta?.progressToken
    const pending: Pending = { id: message.id, progressToken, body: new PassThrough() }
    this.#pending.set(own, pending)
    // The reader of the body gets the error too.
    pending.body.on('error', () => {})
    const abort = () => pending.body.destroy()
    signal.addEventListener('abort', abort, { once: true })
    pending.body.once('close', () => {
      signal.removeEventListener('abort', abort)
      if (!this.#pending.delete(own)) return
      // The response is not read any more.
      const params = { requestId: own, reason: 'the client has disconnected' }
      send({ jsonrpc: '2.0', method: 'notifications/cancelled', params }).catch(() => {})
    })
    try {
      await send(withIds(message, own, progressToken))
    } catch (error) {
      this.#pending.delete(own)
      pending.body.destroy()
      throw error
    }
    if (signal.aborted) abort()
    return pending.body
  }

  /** Sends a notification, or a response to a request of the upstream. @throws as `request`. */
  async notify(message: RpcMessage, send: SendMessage): Promise<void> {
    const { method, params } = message
    const cancelled = method === 'notifications/cancelled' && params ? this.#ownIdOf(params.requestId) : undefined
    await send(cancelled === undefined ? message : { ...message, params: { ...params, requestId: cancelled } })
  }

  /** Returns a stream of the messages that belong to no request. */
  listen(): PassThrough {
    if (this.#options.isShared !== true) for (const earlier of this.#listeners) earlier.end()
    const listener = new PassThrough()
    this.#listeners.add(listener)
    listener.on('error', () => {})
    listener.once('close', () => this.#listeners.delete(listener))
    return listener
  }

  /** Handles a message of the upstream. @param send answers requests to the client that are refused. */
  receive(message: RpcMessage, send: SendMessage): void {
    const { id, method, params } = message
    if (method === undefined) {
      this.#respond(String(id), message)
      return
    }
    if (method === 'notifications/progress') {
      const pending = this.#pending.get(String(params?.progressToken))
      if (pending === undefined) this.strays += 1
      else deliver(pending.body, { ...message, params: { ...params, progressToken: pending.progressToken } })
      return
    }
    const subscription = params?._meta?.[subscriptionKey]
    const subscribed = subscription === undefined ? undefined : this.#pending.get(String(subscription))
    if (subscribed !== undefined) {
      const _meta = { ...params?._meta, [subscriptionKey]: subscribed.id }
      deliver(subscribed.body, { ...message, params: { ...params, _meta } })
      return
    }
    const { refusal } = this.#options
    if (id !== undefined && refusal !== undefined) {
      send({ jsonrpc: '2.0', id, error: { code: -32601, message: refusal } }).catch(() => {})
      return
    }
    for (const each of this.#readersOf(String(method))) deliver(each, message)
  }

  /** Ends every request with the problem. Only the first call has an effect. */
  end(problem: Error): void {
    if (this.#problem) return
    this.#problem = problem
    const waiting = [...this.#pending.values()]
    this.#pending.clear()
    for (const { body } of waiting) body.destroy(problem)
    for (const listener of this.#listeners) listener.end()
    this.#listeners.clear()
  }

  /** Of a shared connection, other notifications can be about another client. */
  #readersOf(method: string): Iterable<PassThrough> {
    if (this.#options.isShared === true) return method.endsWith('/list_changed') ? this.#listeners : []
    if (this.#listeners.size > 0) return this.#listeners
    const latest = [...this.#pending.values()].at(-1)
    return latest ? [latest.body] : []
  }

  #ownIdOf(id: unknown): string | undefined {
    return [...this.#pending].findLast(([, pending]) => pending.id === id)?.[0]
  }

  #respond(own: string, message: RpcMessage): void {
    const pending = this.#pending.get(own)
    if (pending === undefined) {
      this.strays += 1
      return
    }
    this.#pending.delete(own)
    pending.body.end(messageEvent(JSON.stringify({ ...message, id: pending.id })))
  }
}

/** Replaces the ID and the progress token of a request. */
const withIds = (message: RpcMessage, id: string, progressToken: unknown): RpcMessage =>
  progressToken === undefined
    ? { ...message, id }
    : { ...message, id, params: { ...message.params, _meta: { ...message.params?._meta, progressToken: id } } }

/** Sends a message to a client. One that reads too slowly is disconnected. */
function deliver(to: PassThrough, message: RpcMessage): void {
  if (to.destroyed || to.writableEnded) return
  if (to.readableLength + to.writableLength > unreadMaxBytes) {
    to.destroy(new UpstreamProblem('it sends messages faster than the client reads them'))
    return
  }
  to.write(messageEvent(JSON.stringify(message)))
}
