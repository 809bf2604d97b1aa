import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import {
  ClientCapabilities,
  type InputRequests,
  type InputResponses,
  type LogLevel,
} from '../../tools/request-context.ts'
import { checkAnswer } from '../client-answers.ts'
import { isObject, own, type Params } from '../json-rpc.ts'

/** More than one program with one key has open at once. */
const maxPerKey = 64
/** A person may be asked; whoever has not answered by then has left. */
const answerMs = 10 * 60 * 1000
/** Unused for so long, a session is forgotten; its client is told to begin again. */
const idleMs = 60 * 60 * 1000

/**
 * What a client told with `initialize`, kept for those who want to be asked back: that needs to know what they can
 * answer, and where. Nothing else needs a session, and nobody has one who did not ask for it.
 */
export class Session {
  readonly id = newId('session')
  readonly client: ClientCapabilities
  readonly subscriptions = new Set<string>()
  logLevel: LogLevel = 'info'
  readonly #waiting = new Map<string, (message: Params) => void>()

  constructor(capabilities: Params) {
    this.client = new ClientCapabilities(capabilities)
  }

  /**
   * Asks the client on the stream of its own request.
   * @throws Refusal `capability_missing`, `input_invalid` for an answer that is none.
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
      return [name, checkAnswer(name, request, own(message, 'result'))] as const
    })
    return Object.fromEntries(await Promise.all(answers))
  }

  /** Takes an answer. BOUNDARY: ids are unguessable, and an answer that nobody waits for is dropped. */
  take(message: unknown): void {
    if (!isObject(message)) return
    const id = own(message, 'id')
    if (typeof id === 'string') this.#waiting.get(id)?.(message)
  }

  async #send(
    id: string,
    text: string,
    send: (message: string) => Promise<void>,
    signal: AbortSignal,
  ): Promise<Params> {
    const { promise, resolve, reject } = Promise.withResolvers<Params>()
    const timer = setTimeout(() => reject(unanswered('nobody answered in time')), answerMs)
    const cancel = () => reject(unanswered('the request was cancelled'))
    signal.addEventListener('abort', cancel, { once: true })
    this.#waiting.set(id, resolve)
    try {
      await send(text)
      return await promise
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', cancel)
      this.#waiting.delete(id)
    }
  }
}

const unanswered = (problem: string): Refusal => new Refusal('unavailable', { reason: problem })

interface Open {
  session: Session
  keyId: string
  usedAtMs: number
}

/** The sessions of this process. */
export class Sessions {
  readonly #open = new Map<string, Open>()

  /** @throws Refusal `sessions_full`. */
  open(keyId: string, capabilities: Params): Session {
    this.#forgetIdle()
    const own = [...this.#open.values()].filter((open) => open.keyId === keyId).length
    if (own >= maxPerKey) throw new Refusal('sessions_full', { limit: maxPerKey })
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

  #forgetIdle(): void {
    const before = Date.now() - idleMs
    for (const [id, { usedAtMs }] of this.#open) if (usedAtMs < before) this.#open.delete(id)
  }
}
