import { createParser } from 'eventsource-parser'
import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../../core/caller.ts'
import { messageEvent } from '../events.ts'
import { sketchOf, tryParse } from '../message.ts'
import type { RelayReply } from '../reply.ts'
import { eventMaxBytes } from './connection.ts'

/** Messages of one session in progress: as many as one key can have with an upstream. */
const messagesMax = 64
/** An `initialize` is kept for as long as the session lasts. */
const initializeMaxBytes = 64 * 1024

/** Sends one request to an upstream; see `Gateway.relay`. */
export type SendToUpstream = (request: {
  method: 'POST' | 'GET' | 'DELETE'
  headers: Record<string, string>
  body: Buffer
  signal: AbortSignal
}) => Promise<RelayReply>

/** Connects a client with the HTTP+SSE transport to an upstream of any transport. */
export class SseClientSession {
  readonly caller: Caller
  readonly upstream: string
  readonly #send: SendToUpstream
  readonly #write: (event: string) => Promise<void>
  readonly #signal: AbortSignal
  readonly #onHeld: (bytes: number) => void
  readonly #onFault: (error: unknown) => void
  #active = 0
  #heldBytes = 0
  /** The session of the upstream, if it requires one. */
  #upstreamSession: string | undefined
  #protocolVersion: string | undefined
  #initialize: Buffer | undefined
  #last = Promise.resolve()

  /**
   * @param io `write`: sends one event; resolves when there is room for more. `signal`: aborts when the client disconnects.
   * `onHeld`: called with the size of the messages in progress and of the events that the client has not read.
   */
  constructor(
    { caller, upstream }: { caller: Caller; upstream: string },
    io: {
      send: SendToUpstream
      write: (event: string) => Promise<void>
      signal: AbortSignal
      onHeld: (bytes: number) => void
      onFault: (error: unknown) => void
    },
  ) {
    this.caller = caller
    this.upstream = upstream
    this.#send = io.send
    this.#write = io.write
    this.#signal = io.signal
    this.#onHeld = io.onHeld
    this.#onFault = io.onFault
  }

  /**
   * Accepts a message of the client. Everything that it causes, errors too, is sent as events.
   * @throws Refusal `invalid_request` if it is not a JSON-RPC message; `messages_full`.
   */
  accept(body: Buffer): void {
    const message = tryParse(body)
    if (typeof message !== 'object' || message === null) {
      throw new Refusal('invalid_request', { problem: 'the body is not a JSON-RPC message' })
    }
    if (this.#active >= messagesMax) throw new Refusal('messages_full', { limit: messagesMax })
    const { id, method } = sketchOf(message)
    if (method === 'initialize') {
      if (body.length > initializeMaxBytes)
        throw new Refusal('invalid_request', { problem: `initialize is longer than ${initializeMaxBytes} bytes` })
      this.#initialize = body
    }
    this.#active += 1
    void this.#holding(body.length, () => this.#exchange(body, id, method))
      .catch((error: unknown) => this.#fail(id, error))
      .finally(() => {
        this.#active -= 1
      })
  }

  /** Ends the session with the upstream. */
  async end(): Promise<void> {
    if (this.#upstreamSession === undefined) return
    const signal = AbortSignal.timeout(10_000)
    const reply = await this.#send({ method: 'DELETE', headers: this.#headers(), body: Buffer.alloc(0), signal })
    if (reply.kind === 'stream') reply.discard()
  }

  /** Accounts for memory until some work is done. */
  async #holding(bytes: number, work: () => Promise<void>): Promise<void> {
    const hold = (more: number) => {
      this.#heldBytes += more
      this.#onHeld(this.#heldBytes)
    }
    hold(bytes)
    try {
      await work()
    } finally {
      hold(-bytes)
    }
  }

  async #exchange(body: Buffer, id: string | number | undefined, method: string): Promise<void> {
    const reply = await this.#post(body)
    if (reply.kind === 'body' && reply.status === 404 && method !== 'initialize' && (await this.#initializeAgain())) {
      // The upstream has lost the session, and has not executed the message.
      return this.#forward(await this.#post(body), id)
    }
    if (method === 'initialize') this.#upstreamSession = reply.headers['mcp-session-id']
    await this.#forward(reply, id)
    if (method === 'notifications/initialized' && this.#upstreamSession !== undefined) await this.#listen()
  }

  async #initializeAgain(): Promise<boolean> {
    if (this.#initialize === undefined || this.#upstreamSession === undefined) return false
    this.#upstreamSession = undefined
    const reply = await this.#post(this.#initialize)
    this.#upstreamSession = reply.headers['mcp-session-id']
    if (reply.kind === 'body') return false
    for await (const _ of reply.pieces) {
      // The client has its response to `initialize` already.
    }
    await this.#post(Buffer.from(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' })))
    return true
  }

  #post(body: Buffer): Promise<RelayReply> {
    return this.#send({ method: 'POST', headers: this.#headers(), body, signal: this.#signal })
  }

  #headers(): Record<string, string> {
    return {
      accept: 'text/event-stream',
      ...(this.#upstreamSession !== undefined && { 'mcp-session-id': this.#upstreamSession }),
      ...(this.#protocolVersion !== undefined && { 'mcp-protocol-version': this.#protocolVersion }),
    }
  }

  /** Passes on what the upstream sends by itself. Many upstreams send nothing, and refuse the request. */
  async #listen(): Promise<void> {
    const empty = Buffer.alloc(0)
    const reply = await this.#send({ method: 'GET', headers: this.#headers(), body: empty, signal: this.#signal })
    if (reply.kind === 'stream') await this.#forward(reply, undefined)
  }

  async #forward(reply: RelayReply, id: string | number | undefined): Promise<void> {
    if (reply.kind === 'body') {
      if (id !== undefined) await this.#event(errorOf(reply, id))
      return
    }
    const events: string[] = []
    let bytes = 0
    const parser = createParser({
      onEvent: ({ event = 'message', data }) => {
        bytes = 0
        if (event === 'message') events.push(data)
      },
      onComment: () => {
        bytes = 0
      },
    })
    const decoder = new TextDecoder()
    for await (const piece of reply.pieces) {
      bytes += piece.length
      if (bytes > eventMaxBytes) {
        const problem = `it sent an event of more than ${eventMaxBytes} bytes`
        throw new Refusal('upstream_failed', { upstream: this.upstream, problem })
      }
      parser.feed(typeof piece === 'string' ? piece : decoder.decode(piece, { stream: true }))
      for (const data of events.splice(0)) {
        this.#learn(data)
        await this.#event(messageEvent(data))
      }
    }
  }

  /** Reads the protocol version from the response to `initialize`: later requests must repeat it in a header. */
  #learn(data: string): void {
    if (this.#protocolVersion !== undefined || this.#initialize === undefined) return
    this.#protocolVersion = /"protocolVersion"\s*:\s*"([\w.-]{1,32})"/.exec(data)?.[1]
  }

  /** Writes whole events, one after the other. */
  #event(text: string): Promise<void> {
    const written = this.#last.then(() => this.#write(text))
    this.#last = written
    return this.#holding(text.length, () => written)
  }

  async #fail(id: string | number | undefined, error: unknown): Promise<void> {
    if (this.#signal.aborted) return
    if (!(error instanceof Refusal)) this.#onFault(error)
    if (id === undefined) return
    const { code, message } =
      error instanceof Refusal ? { code: error.row.rpc, message: `${error.message} ${error.hint}` } : internal
    await this.#event(messageEvent(JSON.stringify({ jsonrpc: '2.0', id, error: { code, message } })))
  }
}

const internal = { code: -32603, message: 'Internal error.' }

/** Returns the error in a body as the response to a request. */
function errorOf({ body }: Extract<RelayReply, { kind: 'body' }>, id: string | number): string {
  const { error } = (tryParse(Buffer.from(body)) ?? {}) as { error?: object }
  const fallback = { code: -32603, message: 'The upstream has accepted the request, but sent no response.' }
  return messageEvent(JSON.stringify({ jsonrpc: '2.0', id, error: error ?? fallback }))
}
