import { hash, randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import { LRUCache } from 'lru-cache'
import type { UpstreamTarget } from '../../core/upstreams/upstreams.ts'
import { bodyOf, type UpstreamAnswer } from '../exchange.ts'
import { UpstreamProblem } from '../failures.ts'
import { LegacyCall, type LegacySession, type Question, questionKinds, type Reader, uncached } from './legacy-call.ts'
import {
  accepted,
  eventStream,
  type Json,
  legacyVersion,
  messagesOf,
  metaKey,
  modernVersion,
  type RpcMessage,
  respond,
  resultOf,
  type SendMessage,
  versionUnsupported,
} from './messages.ts'

/** Maximum number of sessions, over all keys and upstreams. */
const sessionsMax = 1_000
const idleMs = 10 * 60_000
/** Maximum number of calls that wait for input of a client, over all keys. */
const waitingMax = 1_000
/** The same for one key. */
const waitingOfKeyMax = 64
/** Time that a call waits for input. */
const waitingMs = 5 * 60_000
/** Time to deliver a message that follows from a call, such as a cancellation. */
const followUpMs = 10_000

/** A message of a client of 2026-07-28, and where it is sent to. */
interface Sent {
  message: unknown
  target: Pick<UpstreamTarget, 'id' | 'transport'>
  keyId: string
  /** Aborts when the client disconnects. */
  signal: AbortSignal
}

interface Waiting {
  call: LegacyCall
  question: Question
  session: LegacySession
  upstreamId: string
  keyId: string
  /** Of the request that the client has to repeat. */
  digest: string
}

/**
 * Lets clients of 2026-07-28 use upstreams that only speak older versions. Progress and cancellation are passed on. A
 * question to the client ends its request with `input_required`; the call waits until the client repeats it with the answer:
 * https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
 */
export class LegacyUpstreams {
  /** By upstream, key and capabilities of the client, since an upstream may keep state in a session. */
  readonly #sessions = new LRUCache<string, LegacySession>({ max: sessionsMax, ttl: idleMs, updateAgeOnGet: true })
  readonly #opening = new Map<string, Promise<LegacySession | undefined>>()
  readonly #older = new LRUCache<string, true>({ max: sessionsMax, ttl: idleMs })
  /** By the state that the client repeats. */
  readonly #waiting = new LRUCache<string, Waiting>({
    ...{ max: waitingMax, ttl: waitingMs, ttlAutopurge: true },
    dispose: ({ call }, _state, reason) => reason !== 'delete' && call.cancel(),
  })
  readonly #clientInfo: object
  #requests = 0

  /** @param version of this server, which upstreams receive. */
  constructor(version: string) {
    this.#clientInfo = { name: 'glovebox', version }
  }

  /** Cancels the calls that wait for input. */
  close(): void {
    this.#waiting.clear()
  }

  /** Returns whether messages of newer clients must be translated. */
  has({ id, transport }: Sent['target']): boolean {
    return transport === 'sse' || this.#older.has(id)
  }

  /**
   * Reads how an upstream has answered a message of a newer client.
   * @returns `undefined` if it speaks the newer version, otherwise its answer to the translated message.
   */
  async retry(sent: Sent, { status, headers }: UpstreamAnswer, body: Buffer, send: SendMessage) {
    const { method, params } = sent.message as RpcMessage
    if (!(await speaksOlder(status, headers, body, method === 'server/discover'))) return undefined
    if ((await this.#session(sent, capabilitiesIn(params), send)) === undefined) return undefined
    this.#older.set(sent.target.id, true)
    return this.send(sent, send)
  }

  /** Sends a message of a newer client in the form of the older versions. @throws UpstreamProblem. */
  async send(sent: Sent, send: SendMessage): Promise<UpstreamAnswer> {
    const { id, method, params = {} } = sent.message as RpcMessage
    if (typeof method !== 'string' || id === undefined) return accepted()
    if (method === 'subscriptions/listen') return respond(id, { error: noSubscriptions })
    const digest = hash('sha256', JSON.stringify([method, params.name, params.uri, params.arguments]))
    if (params.requestState !== undefined) return this.#resume(sent, digest, send)
    const capabilities = capabilitiesIn(params)
    const session = await this.#session(sent, capabilities, send)
    if (session === undefined) {
      this.#older.delete(sent.target.id)
      throw new UpstreamProblem('it accepts no session')
    }
    if (method === 'server/discover') return respond(id, { result: discovered(session) })
    const asked = { method, params, capabilities, digest }
    const answer = await this.#request(sent, asked, session, send)
    if (answer.status !== 404 && answer.status !== 400) return answer
    // The upstream has lost the session, and has not executed the request.
    const refused = await bodyOf(answer)
    this.#sessions.delete(sessionName(sent, capabilities))
    const fresh = await this.#session(sent, capabilities, send)
    if (fresh !== undefined) return this.#request(sent, asked, fresh, send)
    this.#older.delete(sent.target.id)
    return { ...answer, body: Readable.from([refused]) }
  }

  /** Returns the session of the key with the upstream; opens one if necessary. */
  #session(sent: Sent, capabilities: Json, send: SendMessage): Promise<LegacySession | undefined> {
    const name = sessionName(sent, capabilities)
    const known = this.#sessions.get(name)
    if (known) return Promise.resolve(known)
    const opening = this.#opening.get(name) ?? this.#open(name, capabilities, send)
    this.#opening.set(name, opening)
    return opening.finally(() => this.#opening.delete(name))
  }

  async #open(name: string, capabilities: Json, send: SendMessage): Promise<LegacySession | undefined> {
    const params = { protocolVersion: legacyVersion, capabilities, clientInfo: this.#clientInfo }
    // A client that disconnects must not end what others of its key wait for. The relay limits the time.
    const { signal } = new AbortController()
    const answer = await send({ jsonrpc: '2.0', id: 0, method: 'initialize', params }, {}, signal)
    const initialized = await resultOf(answer, 0)
    if (initialized === undefined) return undefined
    const { protocolVersion } = initialized
    const id = answer.headers['mcp-session-id']
    const session = {
      ...{ id: typeof id === 'string' ? id : undefined, initialized },
      protocolVersion: typeof protocolVersion === 'string' ? protocolVersion.slice(0, 32) : legacyVersion,
    }
    await bodyOf(await send({ jsonrpc: '2.0', method: 'notifications/initialized' }, headersOf(session), signal))
    this.#sessions.set(name, session)
    return session
  }

  /** Sends a request under an ID of its own, since clients of the key share the session. */
  async #request(
    sent: Sent,
    { method, params, capabilities, digest }: { method: string; params: Json; capabilities: Json; digest: string },
    session: LegacySession,
    send: SendMessage,
  ): Promise<UpstreamAnswer> {
    const own = `gb-${++this.#requests}`
    const { progressToken, ...rest } = (params._meta ?? {}) as Json
    const meta = Object.entries(rest).filter(([name]) => !name.startsWith(metaKey('')))
    const _meta = { ...Object.fromEntries(meta), ...(progressToken !== undefined && { progressToken: own }) }
    const upstream = new AbortController()
    const context = {
      ...{ own, method, session, capabilities, abort: () => upstream.abort() },
      followUp: (message: object) => followUp(message, session, send),
    }
    const leave = () => {
      context.followUp({ method: 'notifications/cancelled', params: { requestId: own } })
      upstream.abort()
    }
    sent.signal.addEventListener('abort', leave, { once: true })
    const request = { jsonrpc: '2.0', id: own, method, params: { ...params, _meta } }
    const answer = await send(request, headersOf(session), upstream.signal).finally(() =>
      sent.signal.removeEventListener('abort', leave),
    )
    if (answer.status !== 200) return answer
    answer.body.on('error', () => {})
    return this.#reply(sent, new LegacyCall(context, answer), { session, digest })
  }

  /** Continues a call with the answer of the client to its question. */
  async #resume(sent: Sent, digest: string, send: SendMessage): Promise<UpstreamAnswer> {
    const { id, params = {} } = sent.message as RpcMessage
    const state = String(params.requestState)
    const waiting = this.#waiting.get(state)
    const isOwn = waiting?.keyId === sent.keyId && waiting.upstreamId === sent.target.id && waiting.digest === digest
    if (waiting === undefined || !isOwn) return respond(id, { error: stateUnknown })
    const { call, question, session } = waiting
    const answer = ((params.inputResponses ?? {}) as Json)[inputName]
    if (typeof answer !== 'object' || answer === null) {
      return respond(id, { result: inputRequired(question, state) })
    }
    this.#waiting.delete(state)
    await bodyOf(await send({ jsonrpc: '2.0', id: question.id, result: answer }, headersOf(session)))
    return this.#reply(sent, call, { session, digest })
  }

  /** Streams the messages of a call to a client. */
  #reply(sent: Sent, call: LegacyCall, { session, digest }: Pick<Waiting, 'session' | 'digest'>): UpstreamAnswer {
    let isWaiting = false
    const reply = call.read(readerOf(sent.message as RpcMessage), (question) => {
      const ofKey = [...this.#waiting.values()].filter(({ keyId }) => keyId === sent.keyId)
      if (ofKey.length >= waitingOfKeyMax) {
        throw new UpstreamProblem(`${waitingOfKeyMax} calls of this key wait for input already`)
      }
      isWaiting = true
      const state = randomUUID()
      const { keyId, target } = sent
      this.#waiting.set(state, { ...{ call, question, session, digest, keyId }, upstreamId: target.id })
      return inputRequired(question, state)
    })
    // Ends after the response, after a question, or because the client has disconnected.
    const streamed = eventStream(reply, () => {
      sent.signal.removeEventListener('abort', leave)
      if (!isWaiting) call.cancel()
    })
    const leave = () => streamed.body.destroy()
    sent.signal.addEventListener('abort', leave, { once: true })
    if (sent.signal.aborted) leave()
    return streamed
  }
}

function followUp(message: object, session: LegacySession, send: SendMessage): void {
  const sent = send({ jsonrpc: '2.0', ...message }, headersOf(session), AbortSignal.timeout(followUpMs))
  sent.then(bodyOf).catch(() => {})
}

/** The capabilities of a client that an upstream can use. */
function capabilitiesIn({ _meta }: Json = {}): Json {
  const declared = ((_meta as Json | undefined)?.[metaKey('clientCapabilities')] ?? {}) as Json
  const known = [...questionKinds.values()].filter((kind) => typeof declared[kind] === 'object')
  return Object.fromEntries(known.map((kind) => [kind, {}]))
}

const sessionName = ({ target, keyId }: Sent, capabilities: Json): string =>
  [target.id, keyId, ...Object.keys(capabilities)].join(' ')

const headersOf = ({ id, protocolVersion }: LegacySession): Record<string, string> => ({
  ...(id !== undefined && { 'mcp-session-id': id }),
  'mcp-protocol-version': protocolVersion,
})

const readerOf = ({ id, params }: RpcMessage): Reader => {
  const { progressToken, [metaKey('logLevel')]: logLevel } = (params?._meta ?? {}) as Json
  return { id, progressToken, wantsLogs: logLevel !== undefined }
}

/** Name of the only question of a result. */
const inputName = 'question'

const inputRequired = ({ method, params }: Question, requestState: string): Json => ({
  ...{ resultType: 'input_required', inputRequests: { [inputName]: { method, params } }, requestState },
})

const stateUnknown = {
  code: -32602,
  message: 'requestState is unknown, belongs to another request, or has expired. Send the request without it.',
}
const noSubscriptions = {
  code: -32601,
  message:
    'This upstream speaks an older version of the protocol, without subscriptions. List its tools again instead.',
}

/** Errors that servers of the newer version send with status 400: https://modelcontextprotocol.io/specification/2026-07-28 */
const modernErrors: readonly unknown[] = [-32020, -32021, -32602]
const methodUnknown = -32601

/**
 * Whether an upstream has refused a message since it does not know the newer version.
 * @param isDiscover whether the message was a request that every server of the newer version knows.
 */
async function speaksOlder(
  status: number,
  headers: UpstreamAnswer['headers'],
  body: Buffer,
  isDiscover: boolean,
): Promise<boolean> {
  let error: RpcMessage['error']
  try {
    for await (const message of messagesOf({ status, headers, body: Readable.from([body]) })) error = message.error
  } catch {
    return status === 400
  }
  if (error?.code === versionUnsupported) {
    const { supported } = (error.data ?? {}) as { supported?: unknown }
    return Array.isArray(supported) && supported.every((version) => version < modernVersion)
  }
  if (error?.code === methodUnknown) return isDiscover
  return (status === 400 || error !== undefined) && !modernErrors.includes(error?.code)
}

/** The capabilities of an upstream, without those that need subscriptions. */
function discovered({ initialized: { capabilities, serverInfo, instructions } }: LegacySession): Json {
  const passed = Object.entries((capabilities ?? {}) as Json)
    .filter(([name]) => !['tasks', 'experimental'].includes(name))
    .map(([name, of]) => {
      const { listChanged: _changes, subscribe: _one, ...rest } = (of ?? {}) as Json
      return [name, rest]
    })
  return {
    ...{ resultType: 'complete', supportedVersions: [modernVersion], capabilities: Object.fromEntries(passed) },
    ...(instructions !== undefined && { instructions }),
    ...uncached,
    _meta: { [metaKey('serverInfo')]: serverInfo },
  }
}
