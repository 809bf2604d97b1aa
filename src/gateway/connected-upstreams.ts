import { hash, randomUUID } from 'node:crypto'
import { type PassThrough, Readable } from 'node:stream'
import { LRUCache } from 'lru-cache'
import { monotonicMs } from '../base/clock.ts'
import type { Caller } from '../core/caller.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'
import { begun, rpcError } from './connected-answers.ts'
import type { Connector, FullScope, UpstreamConnection } from './connector.ts'
import { discover, initializeOf, isOlderRequest, olderRefused, whole } from './eras/connected-eras.ts'
import { messageEvent } from './events.ts'
import type { RelayRequest, UpstreamAnswer } from './exchange.ts'
import { UpstreamProblem } from './failures.ts'
import type { RpcMessage } from './rpc-channel.ts'

/** Maximum number of open connections of one kind, over all keys. */
const connectionsMax = 1_000
/** The same for one key. */
const ofKeyMax = 64
const sweepMs = 1_000
/** A connection without messages for this time makes room for one of another key. */
const unusedMs = 30_000

/** One message for an upstream. */
export interface UpstreamExchange {
  caller: Caller
  target: UpstreamTarget
  request: RelayRequest
  /** The parsed body; `undefined` if it is not JSON. */
  message: unknown
  /** ID of the session that `initialize` opens, if the client has got it already; otherwise a new one. */
  sessionId?: string
}

interface Open<Auth> {
  /** The upstream with its credential, see `placeOf`. */
  place: string
  orgId: string
  /** Empty if all keys share the connection. */
  keyId: string
  /** Changes with the address and the credentials of the upstream. */
  fingerprint: string
  connection: UpstreamConnection<Auth>
  idleMs: number
  /** Monotonic time of the last message of the client. */
  usedMs: number
  /** Whether it speaks 2026-07-28, and the connection was opened by the gateway. */
  isModern?: boolean
  /** Result of the initialization by the gateway. */
  initialized?: unknown
}

/** A session of a client in a connection that all keys share. */
interface SharedSession {
  keyId: string
  name: string
}

/** Serves upstreams that keep connections as if they spoke Streamable HTTP. */
export class ConnectedUpstreams<Auth> {
  readonly #connector: Connector<Auth>
  readonly #version: string
  /** By session ID, and by upstream and key for clients without a session. */
  readonly #open = new LRUCache<string, Open<Auth>>({
    max: connectionsMax,
    dispose: ({ connection }) => {
      // It would be deleted again while it is being deleted, which the cache does not support.
      connection.onEnd = () => {}
      connection.close()
    },
  })
  readonly #sessions = new LRUCache<string, SharedSession>({ max: connectionsMax })
  /** Upstreams that only speak 2026-07-28, by what identifies their connections. */
  readonly #modernOnly = new LRUCache<string, true>({ max: connectionsMax })
  readonly #opening = new Map<string, Promise<Open<Auth>>>()
  readonly #sweep = setInterval(() => this.#closeIdle(), sweepMs).unref()

  /** @param version of this server, which upstreams receive. */
  constructor(connector: Connector<Auth>, version: string) {
    this.#connector = connector
    this.#version = version
  }

  /**
   * Sends one request of a client.
   * @returns the response as an upstream with Streamable HTTP would give it.
   * @throws UpstreamProblem, UpstreamTimeout, Refusal `upstream_misconfigured`, and errors of the connection.
   */
  async exchange(exchange: UpstreamExchange): Promise<UpstreamAnswer> {
    try {
      switch (exchange.request.method) {
        case 'GET':
          return this.#listen(exchange)
        case 'DELETE':
          return this.#endSession(exchange)
        case 'POST':
          return await this.#post(exchange)
      }
    } catch (error) {
      const status = this.#connector.statusOf(error)
      if (status !== undefined) return { status, headers: {}, body: Readable.from([]) }
      throw error
    }
  }

  /** Returns whether a message is a request whose answer takes long if it needs a connection, so that its client must be kept waiting. */
  async isSlow({ target, message }: Pick<UpstreamExchange, 'target' | 'message'>): Promise<boolean> {
    const { method, id } = (message ?? {}) as RpcMessage
    return method !== undefined && id !== undefined && (await this.#connector.isSlow(target))
  }

  /** Closes all connections. */
  close(): void {
    clearInterval(this.#sweep)
    this.#open.clear()
    this.#sessions.clear()
  }

  #closeIdle(): void {
    const nowMs = monotonicMs()
    for (const [name, { connection, usedMs, idleMs }] of [...this.#open.entries()]) {
      if (usedMs < nowMs - idleMs && !connection.isBusy) this.#open.delete(name)
    }
  }

  async #post(exchange: UpstreamExchange): Promise<UpstreamAnswer> {
    const { target, request, message: given } = exchange
    if (typeof given !== 'object' || given === null || Array.isArray(given)) {
      return rpcError(400, -32600, 'This server accepts single JSON-RPC messages only.')
    }
    const message = structuredClone(given) as RpcMessage
    this.#connector.authorize(target).intoBody?.(message)
    if (this.#modernOnly.has(fingerprintOf(target)) && isOlderRequest(message)) return olderRefused()
    const isInitialize = message.method === 'initialize'
    const sessionId = isInitialize ? (exchange.sessionId ?? randomUUID()) : request.headers['mcp-session-id']
    return this.#answer(exchange, message, sessionId as string | undefined)
  }

  async #answer(
    exchange: UpstreamExchange,
    message: RpcMessage,
    sessionId: string | undefined,
  ): Promise<UpstreamAnswer> {
    const { target, request } = exchange
    const isInitialize = message.method === 'initialize'
    const isShared = this.#connector.isShared(target)
    const open = isInitialize
      ? await (isShared ? this.#shared(sessionId!, exchange) : this.#connect(sessionId!, exchange, false))
      : sessionId === undefined
        ? await this.#own(exchange)
        : this.#find(sessionId, exchange)
    if (open === undefined) return rpcError(404, -32001, 'Session not found')
    if (open.isModern === true && isOlderRequest(message)) return olderRefused()
    const headers = isInitialize ? { 'mcp-session-id': sessionId! } : {}
    const { auth } = this.#connector.authorize(target, request)
    if (message.method === undefined || message.id === undefined) {
      // The gateway has initialized its own connections already.
      const isDone = (sessionId === undefined || isShared) && message.method === 'notifications/initialized'
      if (!isDone) await open.connection.notify(message, auth)
      return { status: 202, headers, body: Readable.from([]) }
    }
    const stream = { ...headers, 'content-type': 'text/event-stream' }
    if (isInitialize && isShared) {
      const answer = { jsonrpc: '2.0', id: message.id, result: open.initialized }
      return { status: 200, headers: stream, body: Readable.from([Buffer.from(messageEvent(JSON.stringify(answer)))]) }
    }
    const body = await open.connection.request(message, auth, request.signal)
    if (!isInitialize) await begun(body, target.timeoutMs)
    else return (await this.#initializedBy(open, target, sessionId!, body)) ?? olderRefused()
    return { status: 200, headers: stream, body }
  }

  #listen(exchange: UpstreamExchange): UpstreamAnswer {
    const sessionId = exchange.request.headers['mcp-session-id'] as string | undefined
    const open = sessionId === undefined ? undefined : this.#find(sessionId, exchange)
    if (open === undefined) return rpcError(sessionId === undefined ? 405 : 404, -32001, 'Session not found')
    const body = open.connection.listen()
    exchange.request.signal.addEventListener('abort', () => body.destroy(), { once: true })
    return { status: 200, headers: { 'content-type': 'text/event-stream' }, body }
  }

  #endSession(exchange: UpstreamExchange): UpstreamAnswer {
    const sessionId = exchange.request.headers['mcp-session-id'] as string | undefined
    if (sessionId === undefined || this.#find(sessionId, exchange) === undefined) {
      return rpcError(404, -32001, 'Session not found')
    }
    // A shared connection continues.
    if (!this.#sessions.delete(sessionId)) this.#open.delete(sessionId)
    return { status: 204, headers: {}, body: Readable.from([]) }
  }

  #find(name: string, { caller, target }: Pick<UpstreamExchange, 'caller' | 'target'>): Open<Auth> | undefined {
    const session = this.#sessions.get(name)
    if (session !== undefined && session.keyId !== caller.keyId) return undefined
    const open = this.#open.get(session?.name ?? name)
    const isOwn = open?.keyId === caller.keyId || open?.keyId === ''
    if (open === undefined || !isOwn || open.fingerprint !== fingerprintOf(target)) return undefined
    open.usedMs = monotonicMs()
    return open.connection.hasEnded ? undefined : open
  }

  /** Opens a session in the connection that all keys share. */
  async #shared(sessionId: string, exchange: UpstreamExchange): Promise<Open<Auth>> {
    const open = await this.#own(exchange)
    this.#sessions.set(sessionId, { keyId: exchange.caller.keyId, name: ownName(exchange, true) })
    return open
  }

  /** Returns the connection of a key without a session, which the gateway initializes. */
  #own(exchange: UpstreamExchange): Promise<Open<Auth>> {
    const name = ownName(exchange, this.#connector.isShared(exchange.target))
    const known = this.#find(name, exchange)
    if (known) return Promise.resolve(known)
    const opening = this.#opening.get(name) ?? this.#initialized(name, exchange)
    this.#opening.set(name, opening)
    return opening.finally(() => this.#opening.delete(name))
  }

  /** Passes on the answer to `initialize` of a client. @returns `undefined` if the upstream only speaks 2026-07-28. */
  async #initializedBy(
    open: Open<Auth>,
    target: UpstreamTarget,
    sessionId: string,
    answer: PassThrough,
  ): Promise<UpstreamAnswer | undefined> {
    const { body, message } = await whole(answer, target.timeoutMs)
    if (message.result === undefined && (await this.#discovered(open, target))) {
      this.#open.delete(sessionId)
      return undefined
    }
    const headers = { 'mcp-session-id': sessionId, 'content-type': 'text/event-stream' }
    return { status: 200, headers, body: Readable.from([body]) }
  }

  /** Returns whether an upstream only speaks 2026-07-28. */
  async #discovered(open: Open<Auth>, target: UpstreamTarget): Promise<boolean> {
    const { auth } = this.#connector.authorize(target)
    const ask = (message: RpcMessage, signal: AbortSignal) => open.connection.request(message, auth, signal)
    const described = await discover(ask, this.#version, target.timeoutMs)
    if (described === undefined) {
      this.#modernOnly.delete(open.fingerprint)
      return false
    }
    this.#modernOnly.set(open.fingerprint, true)
    open.initialized = described
    open.isModern = true
    return true
  }

  async #initialized(name: string, exchange: UpstreamExchange): Promise<Open<Auth>> {
    const { target } = exchange
    const open = await this.#connect(name, exchange, true)
    try {
      if (this.#modernOnly.has(open.fingerprint) && (await this.#discovered(open, target))) return open
      const { auth } = this.#connector.authorize(target)
      const signal = AbortSignal.timeout(target.timeoutMs)
      const first = await open.connection.request(initializeOf(this.#version), auth, signal)
      const { result, error } = (await whole(first, target.timeoutMs)).message
      if (result === undefined) {
        if (await this.#discovered(open, target)) return open
        throw new UpstreamProblem(`it refused to be initialized: ${String(error?.message).slice(0, 200)}`)
      }
      open.initialized = result
      await open.connection.notify({ jsonrpc: '2.0', method: 'notifications/initialized' }, auth)
      return open
    } catch (error) {
      if (this.#open.peek(name) === open) this.#open.delete(name)
      throw error
    }
  }

  /**
   * Closes what is unused for the longest time: a connection of the upstream, or all connections of another one. A key
   * cannot close those that others have just used.
   * @returns whether there was something to close.
   */
  #closeUnused(scope: FullScope, target: UpstreamTarget, keyId: string): boolean {
    const usedBeforeMs = monotonicMs() - unusedMs
    const all = [...this.#open.entries()].filter(([, open]) => scope === 'instance' || open.orgId === target.orgId)
    const groups =
      scope === 'upstream'
        ? all.filter(([, { place }]) => place === placeOf(target)).map((one) => [one])
        : [...Map.groupBy(all, ([, { place }]) => place).values()]
    const isUnused = ([, open]: [string, Open<Auth>]) =>
      !open.connection.isBusy && (open.keyId === keyId || open.usedMs < usedBeforeMs)
    const usedMs = (group: [string, Open<Auth>][]) => Math.max(...group.map(([, open]) => open.usedMs))
    const [oldest = []] = groups.filter((group) => group.every(isUnused)).sort((a, b) => usedMs(a) - usedMs(b))
    for (const [name] of oldest) this.#open.delete(name)
    return oldest.length > 0
  }

  async #connect(name: string, { caller, target }: UpstreamExchange, isOwn: boolean): Promise<Open<Auth>> {
    const keyId = isOwn && this.#connector.isShared(target) ? '' : caller.keyId
    const ofKey = [...this.#open.values()].filter((open) => open.keyId === keyId)
    if (keyId !== '' && ofKey.length >= ofKeyMax) {
      throw new UpstreamProblem(`this key has ${ofKeyMax} open sessions with ${this.#connector.what}`)
    }
    const { auth } = this.#connector.authorize(target)
    const connect = () => this.#connector.connect(target, auth, isOwn)
    const connection = await connect().catch((error: unknown) => {
      // Many clients leave their sessions open.
      const scope = this.#connector.fullScope(error)
      if (scope === undefined || !this.#closeUnused(scope, target, keyId)) throw error
      return connect()
    })
    const open = {
      ...{ place: placeOf(target), orgId: target.orgId, keyId, fingerprint: fingerprintOf(target), connection },
      ...{ usedMs: monotonicMs(), idleMs: this.#connector.idleMsOf(target) },
    }
    this.#open.set(name, open)
    connection.onEnd = () => {
      if (this.#open.peek(name) === open) this.#open.delete(name)
    }
    return open
  }
}

const placeOf = ({ id, credentialOf }: UpstreamTarget): string => `${id} ${credentialOf}`

/** Connections are shared by keys that have the same credential only. */
const ownName = ({ caller, target }: UpstreamExchange, isShared: boolean): string =>
  isShared ? `${target.id} shared ${target.credentialOf}` : `${target.id} ${caller.keyId}`

/** The access token of a login changes while its sessions continue. */
const fingerprintOf = ({ url, program, secrets, credentialOf }: UpstreamTarget): string => {
  const { headers, env, oauth, credential } = secrets
  return hash('sha256', JSON.stringify([url, program, headers, env, oauth ? credentialOf : credential]))
}
