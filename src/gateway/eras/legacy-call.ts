import type { UpstreamAnswer } from '../exchange.ts'
import { UpstreamProblem } from '../failures.ts'
import { type Json, messagesOf, metaKey, type RpcMessage } from './messages.ts'

/** Maximum number of requests to the client in one call. */
const requestsMax = 16
/** Time from a response to the end of its stream. */
const drainMs = 1_000

/** A session of the gateway with an upstream of the older versions. */
export interface LegacySession {
  /** Absent if the upstream requires none. */
  id: string | undefined
  protocolVersion: string
  /** The result of `initialize`. */
  initialized: Json
}

/** How the client of one message wants its messages. A call that asks for input has several clients in turn. */
export interface Reader {
  id: unknown
  progressToken: unknown
  wantsLogs: boolean
}

/** A request of the upstream to the client, which the client answers by repeating its own request. */
export interface Question {
  id: string | number
  method: string
  params: Json
}

/** The kinds of questions, and the capability that a client declares for each. */
export const questionKinds: ReadonlyMap<unknown, string> = new Map([
  ['elicitation/create', 'elicitation'],
  ['sampling/createMessage', 'sampling'],
  ['roots/list', 'roots'],
])

interface CallContext {
  /** ID of the request in the session, which all clients of the key share. */
  own: string
  method: string
  session: LegacySession
  /** Capabilities that the client has declared. */
  capabilities: Json
  /** Sends a message that follows from the call, without waiting for it. */
  followUp: (message: object) => void
  /** Ends the request to the upstream. */
  abort: () => void
}

/** A request of a client of 2026-07-28 to an upstream of the older versions, while it is in progress. */
export class LegacyCall {
  readonly #context: CallContext
  readonly #messages: AsyncGenerator<RpcMessage, void, undefined>
  #asked = 0
  #isOver = false

  constructor(context: CallContext, answer: UpstreamAnswer) {
    this.#context = context
    this.#messages = messagesOf(answer)
  }

  /**
   * Reads messages for a client, up to the response or a question.
   * @param onQuestion returns the result that asks the client.
   */
  async *read(reader: Reader, onQuestion: (question: Question) => Json): AsyncGenerator<RpcMessage, void, undefined> {
    for (;;) {
      const { value: message, done } = await this.#messages.next()
      if (done) {
        this.#isOver = true
        return
      }
      if (message.method === undefined) {
        if (message.id !== this.#context.own) continue
        this.#isOver = true
        void this.#drain()
        yield this.#response(message, reader.id)
        return
      }
      const question = this.#questionIn(message)
      if (question !== undefined) {
        yield { jsonrpc: '2.0', id: reader.id, result: onQuestion(question) }
        return
      }
      const forClient = this.#notification(message, reader)
      if (forClient !== undefined) yield forClient
    }
  }

  /** Ends the call if it is in progress. Without sessions, disconnecting does not cancel, so the upstream gets a message. */
  cancel(): void {
    if (this.#isOver) return
    this.#isOver = true
    const { own, followUp, abort } = this.#context
    const params = { requestId: own, reason: 'the client has disconnected' }
    followUp({ method: 'notifications/cancelled', params })
    abort()
  }

  /** Waits shortly for the end of the response, so that its connection can be used again. */
  async #drain(): Promise<void> {
    const timer = setTimeout(this.#context.abort, drainMs).unref()
    try {
      while (!(await this.#messages.next()).done);
    } catch {
      // Its connection is closed.
    } finally {
      clearTimeout(timer)
    }
  }

  #notification(message: RpcMessage, { progressToken, wantsLogs }: Reader): RpcMessage | undefined {
    if (message.id !== undefined) return undefined
    if (message.method === 'notifications/message') return wantsLogs ? message : undefined
    if (message.method !== 'notifications/progress' || message.params?.progressToken !== this.#context.own)
      return undefined
    return progressToken === undefined ? undefined : { ...message, params: { ...message.params, progressToken } }
  }

  /** Answers requests of the upstream that no client has to. @returns a request that the client must answer. */
  #questionIn({ id, method, params = {} }: RpcMessage): Question | undefined {
    if (typeof method !== 'string' || (typeof id !== 'string' && typeof id !== 'number')) return undefined
    const { followUp, capabilities } = this.#context
    if (++this.#asked > requestsMax)
      throw new UpstreamProblem(`it sent more than ${requestsMax} requests to the client`)
    if (method === 'ping') {
      followUp({ id, result: {} })
      return undefined
    }
    const kind = questionKinds.get(method)
    if (kind !== undefined && capabilities[kind] !== undefined) return { id, method, params }
    followUp({ id, error: { code: -32601, message: `The client does not answer ${method.slice(0, 64)}.` } })
    return undefined
  }

  #response({ result, error }: RpcMessage, id: unknown): RpcMessage {
    if (typeof result !== 'object' || result === null) {
      const code = error?.code === resourceMissing ? invalidParams : error?.code
      return { jsonrpc: '2.0', id, error: { ...error, code } }
    }
    const { method, session } = this.#context
    const _meta = { ...(result._meta as Json | undefined), [metaKey('serverInfo')]: session.initialized.serverInfo }
    const caching = cacheable.test(method) ? uncached : {}
    return { jsonrpc: '2.0', id, result: { ...result, resultType: 'complete', ...caching, _meta } }
  }
}

/** Keeps clients of the newer version from reusing a result. */
export const uncached = { ttlMs: 0, cacheScope: 'private' }
const cacheable = /^(?:resources\/read|(?:tools|prompts|resources|resources\/templates)\/list)$/
/** A code of the older versions that the newer one forbids, and its replacement. */
const [resourceMissing, invalidParams] = [-32002, -32602]
