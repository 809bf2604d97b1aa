import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import {
  ClientCapabilities,
  type InputRequests,
  type InputResponses,
  type LogLevel,
} from '../../tools/request-context.ts'
import { checkInputResponse } from '../input-response.ts'
import { own, type Params } from '../json-rpc/message.ts'

/** More than the programs with one key that are open at once. */
const maxPerKey = 64
/** Long enough for a person to answer. */
const responseTimeoutMs = 10 * 60 * 1000
/** A session expires when it is not used for this time. Its client must then initialize again. */
const idleMs = 60 * 60 * 1000

/**
 * The state of a client that requested a session: its capabilities, log level and subscriptions, and the requests that
 * the server sent to it. Clients without a session need none of this.
 */
export class Session {
  readonly id = newId('session')
  readonly client: ClientCapabilities
  readonly subscriptions = new Set<string>()
  logLevel: LogLevel = 'info'
  readonly #pending = new Map<string, (message: Params) => void>()

  constructor(capabilities: Params) {
    this.client = new ClientCapabilities(capabilities)
  }

  /**
   * Sends requests to the client on the stream of its own request, and waits for the responses.
   * @throws Refusal `capability_missing`, `input_invalid` for a malformed response, `unavailable` without a response.
   */
  async ask(
    requests: InputRequests,
    send: (message: string) => Promise<void>,
    signal: AbortSignal,
  ): Promise<InputResponses> {
    this.client.require(requests)
    const answers = Object.entries(requests).map(async ([name, request]) => {
      const id = newId('request')
      const message = await this.#send(id, JSON.stringify({ jsonrpc: '2.0', id, ...request }), send, signal)
      return [name, checkInputResponse(name, request, own(message, 'result'))] as const
    })
    return Object.fromEntries(await Promise.all(answers))
  }

  /** Receives a response of the client. BOUNDARY: ids are unguessable, and a response to no pending request is dropped. */
  receiveResponse(message: Params): void {
    const id = own(message, 'id')
    if (typeof id === 'string') this.#pending.get(id)?.(message)
  }

  async #send(
    id: string,
    text: string,
    send: (message: string) => Promise<void>,
    signal: AbortSignal,
  ): Promise<Params> {
    const { promise, resolve, reject } = Promise.withResolvers<Params>()
    const timer = setTimeout(() => reject(unanswered('the client did not respond in time')), responseTimeoutMs)
    const cancel = () => reject(unanswered('the request was cancelled'))
    signal.addEventListener('abort', cancel, { once: true })
    this.#pending.set(id, resolve)
    try {
      await send(text)
      return await promise
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', cancel)
      this.#pending.delete(id)
    }
  }
}

const unanswered = (problem: string): Refusal => new Refusal('unavailable', { reason: problem })

interface Open {
  session: Session
  keyId: string
  usedAtMs: number
}

/** The open sessions of this process. */
export class Sessions {
  readonly #open = new Map<string, Open>()

  /** @throws Refusal `sessions_full`. */
  open(keyId: string, capabilities: Params): Session {
    this.#removeExpired()
    const openOfKey = [...this.#open.values()].filter((open) => open.keyId === keyId).length
    if (openOfKey >= maxPerKey) throw new Refusal('sessions_full', { limit: maxPerKey })
    const session = new Session(capabilities)
    this.#open.set(session.id, { session, keyId, usedAtMs: Date.now() })
    return session
  }

  /** @throws Refusal `session_unknown`, also for a session of another key. */
  find(keyId: string, id: string): Session {
    const open = this.#open.get(id)
    if (open === undefined || open.keyId !== keyId) throw new Refusal('session_unknown')
    open.usedAtMs = Date.now()
    return open.session
  }

  /** @throws Refusal `session_unknown`. */
  end(keyId: string, id: string): void {
    this.find(keyId, id)
    this.#open.delete(id)
  }

  #removeExpired(): void {
    const before = Date.now() - idleMs
    for (const [id, { usedAtMs }] of this.#open) if (usedAtMs < before) this.#open.delete(id)
  }
}
