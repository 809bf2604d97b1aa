import { randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import type { Agent } from 'undici'
import { monotonicMs } from '../base/clock.ts'
import { Refusal } from '../base/errors.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import { loginRequired } from '../core/upstreams/login-required.ts'
import { redactSecrets } from '../core/upstreams/redact-secrets.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'
import type { CircuitBreaker } from './breaker.ts'
import type { CallRates } from './call-rates.ts'
import { deferred } from './connected-answers.ts'
import type { ConnectedUpstreams } from './connected-upstreams.ts'
import type { Credentials } from './credentials.ts'
import { requestDirectly } from './direct-answer.ts'
import { LegacyUpstreams } from './eras/legacy-upstreams.ts'
import type { SendMessage } from './eras/messages.ts'
import { ModernUpstreams } from './eras/modern-upstreams.ts'
import {
  bodyOf,
  bodyToSend,
  dropped,
  excerpt,
  isProtocolError,
  passedOn,
  pick,
  type RelayRequest,
  sessionHeaders,
  type UpstreamAnswer,
} from './exchange.ts'
import { toRefusal } from './failures.ts'
import { countedRequests, isRestricted, mayCall, requireAllowed, sketchOf, tryParse } from './message.ts'
import type { AccessTokens } from './oauth/access-tokens.ts'
import { type Call, type RelayReply, streamed } from './reply.ts'
import type { UpstreamSessions } from './sessions.ts'
import { canListTools, withToolsOf } from './tool-lists.ts'
import { beginCall, partOf, traceOf } from './trace-context.ts'

/** Time without a byte after which a response counts as failed. */
const idleMs = 300_000
/** Maximum number of calls of one upstream in progress, over all keys of its organization. */
const callsMax = 256
/** The same for one key, so that it cannot use up the upstream for the others. */
const callsOfKeyMax = 64
const retryAfterSeconds = 1
/** Latest version with an `initialize` request: https://modelcontextprotocol.io/specification/2025-11-25 */
const legacyVersion = '2025-11-25'

export interface RelayDeps {
  core: Pick<Core, 'announceUpstreamChange' | 'noteUpstreamUse' | 'countUpstreamCall' | 'seenTools' | 'tracing'>
  agent: Agent
  credentials: Credentials
  breaker: CircuitBreaker
  sessions: UpstreamSessions
  tokens: AccessTokens
  rates: CallRates
  /** Upstreams that keep connections. */
  connected: Readonly<Record<'sse' | 'stdio', Pick<ConnectedUpstreams<unknown>, 'exchange' | 'isSlow'>>>
  version: string
}

/** Forwards messages to upstreams, and streams their responses back. */
export class Relay {
  readonly #deps: RelayDeps
  readonly #modern: ModernUpstreams
  readonly #legacy: LegacyUpstreams
  /** Number of calls in progress, by ID of the upstream, and by that ID with the one of the key. */
  readonly #calls = new Map<string, number>()

  constructor(deps: RelayDeps) {
    this.#deps = deps
    this.#modern = new ModernUpstreams(deps.version)
    this.#legacy = new LegacyUpstreams(deps.version)
  }

  /** Ends the calls that wait for input of a client. */
  close(): void {
    this.#legacy.close()
  }

  /**
   * Sends one request to an upstream.
   * @returns the response, as soon as its headers have arrived.
   * @throws Refusal `upstream_failed`, `upstream_timeout`, `upstream_misconfigured`, `upstream_tool_denied`,
   * `upstream_full`, `invalid_request`, `upstream_login_required`, `upstream_login_failed`,
   * `upstream_rate_limited`.
   */
  async relay(caller: Caller, target: UpstreamTarget, request: RelayRequest): Promise<RelayReply> {
    const call = this.#begin(caller, target, request)
    try {
      if (target.secrets.oauth) call.target = await this.#deps.tokens.authorized(target)
      const answer = await this.#send(call)
      return await this.#toReply(call, answer)
    } catch (error) {
      try {
        const refusal = toRefusal(error, call.target)
        const isOfUpstream = refusal.code === 'upstream_failed' || refusal.code === 'upstream_timeout'
        if (isOfUpstream && !request.signal.aborted) call.end('failed')
        throw refusal
      } finally {
        call.end('neutral')
      }
    }
  }

  #begin(caller: Caller, target: UpstreamTarget, request: RelayRequest): Call {
    const { id, name } = target
    const ofKey = `${id} ${caller.keyId}`
    this.#requirePlace(id, callsMax, name)
    this.#requirePlace(ofKey, callsOfKeyMax, name)
    const message = request.body.length === 0 ? undefined : tryParse(request.body)
    if (request.method === 'POST' && isRestricted(target)) requireAllowed(message, target)
    if (request.method === 'POST') this.#deps.rates.count(caller, countedRequests(message))
    // The credential of one key may fail where those of others work.
    const circuit = target.credentialOf === '' ? id : `${id} ${target.credentialOf}`
    const waitSeconds = this.#deps.breaker.enter(circuit)
    if (waitSeconds > 0) {
      const problem = 'it failed several times in a row'
      throw new Refusal('upstream_failed', { upstream: name, problem, retryAfterSeconds: waitSeconds })
    }
    this.#count(id, 1)
    this.#count(ofKey, 1)
    if (target.listedAt !== null) this.#deps.core.noteUpstreamUse(caller.orgId, name, target.listedAt)
    const startMs = monotonicMs()
    const sketch = sketchOf(message)
    const { tracing } = this.#deps.core
    const span = tracing && beginCall(tracing, name, message)
    let bytes = request.body.length
    let hasEnded = false
    return {
      ...{ caller, target, request: span ? partOf(span, request) : request, message, sketch },
      count: (more) => {
        bytes += more
      },
      announceChange: () => this.#deps.core.announceUpstreamChange(caller.orgId, name),
      end: (outcome) => {
        if (hasEnded) return
        hasEnded = true
        this.#count(id, -1)
        this.#count(ofKey, -1)
        span?.end({ 'glovebox.outcome': outcome }, outcome === 'failed')
        this.#deps.breaker.leave(circuit, outcome === 'rejected' ? 'succeeded' : outcome)
        if (sketch.method === '') return
        const latencyMs = monotonicMs() - startMs
        this.#deps.core.countUpstreamCall(caller, {
          ...{ upstream: name, tool: target.approved?.has(sketch.tool) ? sketch.tool : '', latencyMs, bytes },
          failed: outcome === 'failed' || outcome === 'rejected',
        })
      },
    }
  }

  #requirePlace(of: string, limit: number, upstream: string): void {
    if ((this.#calls.get(of) ?? 0) >= limit) throw new Refusal('upstream_full', { upstream, limit, retryAfterSeconds })
  }

  #count(of: string, more: 1 | -1): void {
    const calls = (this.#calls.get(of) ?? 0) + more
    if (calls === 0) this.#calls.delete(of)
    else this.#calls.set(of, calls)
  }

  /**
   * Sends the message. If the upstream requires a session and the client has none, uses a session of the gateway; if the
   * upstream and the client have no version in common, translates.
   */
  async #send(call: Call): Promise<UpstreamAnswer> {
    const { target, caller, request, sketch } = call
    if (request.method !== 'POST') return this.#request(call, {})
    if (target.transport !== 'http' && (await this.#mustWait(call))) {
      // The gateway itself reads the first answers, within a time in which no upstream is installed.
      call.isDeferred = true
      if (sketch.method === 'initialize') call.sessionId = randomUUID()
      return deferred(this.#send(call), call.sessionId)
    }
    if (request.headers['mcp-method'] !== undefined) return this.#sendModern(call)
    if (this.#modern.has(target.id)) return this.#toModern(call)
    const needsOwn = sketch.method !== 'initialize' && request.headers['mcp-session-id'] === undefined
    const { sessions } = this.#deps
    const known = needsOwn ? sessions.get(target.id, caller.keyId) : undefined
    const answer = await this.#request(call, known ? sessionHeaders(known) : {})
    if (answer.status !== 400 && (answer.status !== 404 || !needsOwn)) return answer
    // The upstream rejected the request before executing it: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
    const refused = await bodyOf(answer)
    if (this.#modern.learn(target.id, refused)) return this.#toModern(call)
    const unchanged = { ...answer, body: Readable.from([refused]) }
    if (!needsOwn) return unchanged
    sessions.delete(target.id, caller.keyId)
    const session = await this.#openSession(call)
    if (session === undefined) return unchanged
    sessions.set(target.id, caller.keyId, session)
    return this.#request(call, sessionHeaders(session))
  }

  /** Returns whether the client must be kept waiting, since the upstream is installed first. */
  async #mustWait(call: Call): Promise<boolean> {
    const { target, request, sketch } = call
    const { transport } = target
    if (transport === 'http' || call.isDeferred === true || sketch.method === '') return false
    const needsConnection = sketch.method === 'initialize' || request.headers['mcp-session-id'] === undefined
    return needsConnection && this.#deps.connected[transport].isSlow(call)
  }

  /** Sends a message of 2026-07-28. Translates it for an upstream that only speaks older versions. */
  async #sendModern(call: Call): Promise<UpstreamAnswer> {
    const { target, caller, request, message, sketch } = call
    if (sketch.method === '') return this.#request(call, {})
    const sent = { message, target, keyId: caller.keyId, signal: request.signal }
    if (this.#legacy.has(target)) return this.#legacy.send(sent, this.#sender(call))
    const answer = await this.#request(call, {})
    const isProbe = sketch.method === 'server/discover' && answer.status === 200
    if (answer.status !== 400 && answer.status !== 404 && !isProbe) return answer
    const body = await bodyOf(answer)
    const retried = await this.#legacy.retry(sent, answer, body, this.#sender(call))
    return retried ?? { ...answer, body: Readable.from([body]) }
  }

  #toModern(call: Call): Promise<UpstreamAnswer> {
    const { message, caller, request } = call
    const sessionId = request.headers['mcp-session-id'] as string | undefined
    return this.#modern.send({ message, sessionId, keyId: caller.keyId, signal: request.signal }, this.#sender(call))
  }

  #sender(call: Call): SendMessage {
    return (message, headers, signal) => this.#post(call, message, headers, signal)
  }

  async #openSession(call: Call): Promise<{ id: string; protocolVersion: string } | undefined> {
    const { version } = this.#deps
    const params = {
      ...{ protocolVersion: legacyVersion, capabilities: {}, clientInfo: { name: 'glovebox', version } },
    }
    const first = await this.#post(call, { jsonrpc: '2.0', id: 0, method: 'initialize', params }, {})
    const id = first.headers['mcp-session-id']
    const text = (await bodyOf(first)).toString('utf8')
    if (first.status !== 200 || typeof id !== 'string') return undefined
    const agreed = /"protocolVersion"\s*:\s*"([\w.-]{1,32})"/.exec(text)?.[1] ?? legacyVersion
    const session = { id, protocolVersion: agreed }
    await bodyOf(
      await this.#post(call, { jsonrpc: '2.0', method: 'notifications/initialized' }, sessionHeaders(session)),
    )
    return session
  }

  /** Sends a message of the gateway. Of the headers of the client, only those of tracing are sent. */
  #post(
    call: Call,
    message: object,
    more: Record<string, string>,
    signal: AbortSignal = call.request.signal,
  ): Promise<UpstreamAnswer> {
    const body = Buffer.from(JSON.stringify(message))
    const headers = { ...traceOf(call.request), ...more }
    return this.#request({ ...call, request: { method: 'POST', headers, body, signal }, message }, more)
  }

  /** Sends a message. If the upstream rejects the token of a login, renews it and sends the message once more. */
  async #request(call: Call, more: Record<string, string>): Promise<UpstreamAnswer> {
    const answer = await this.#attempt(call, more)
    if (answer.status !== 401 || !call.target.secrets.oauth) return answer
    await bodyOf(answer)
    call.target = await this.#deps.tokens.renewed(call.target)
    const again = await this.#attempt(call, more)
    if (again.status !== 401) return again
    await bodyOf(again)
    const { name, credentialOf } = call.target
    throw loginRequired(name, credentialOf, 'it rejects the access token, also after a renewal')
  }

  async #attempt(call: Call, more: Record<string, string>): Promise<UpstreamAnswer> {
    const { transport } = call.target
    if (transport !== 'http') return this.#deps.connected[transport].exchange(call)
    const { target, request, message } = call
    const { url, headers: own, intoBody } = this.#deps.credentials.authorize(target)
    const isLong = request.method === 'GET'
    return requestDirectly(
      this.#deps.agent,
      {
        ...{ ...placeOf(url), method: request.method },
        headers: { ...passedOn(request), ...more, ...own },
        body: request.method === 'POST' ? bodyToSend(request.body, message, target, intoBody) : null,
        headersTimeout: 0,
        // The stream of a GET is silent until the upstream sends a message.
        bodyTimeout: isLong ? 0 : idleMs,
      },
      { signal: request.signal, timeoutMs: target.timeoutMs },
    )
  }

  /** Leaves out the tools that the caller may not call, and those that are not as they were approved. */
  #checked(call: Call, answer: UpstreamAnswer): Promise<UpstreamAnswer> {
    const { target } = call
    return withToolsOf(answer, (tools) => {
      const differing = this.#deps.core.seenTools.compare(target, tools)
      const named = tools.filter(isNamed)
      // One that is as it was approved again is suspended until the tools were read.
      if (differing.size > 0 || named.some(({ name }) => target.suspended.has(name))) call.announceChange()
      return named.filter(({ name }) => !differing.has(name) && mayCall(target, name))
    })
  }

  async #toReply(call: Call, answer: UpstreamAnswer): Promise<RelayReply> {
    const { status, headers: received } = answer
    const headers = pick(received)
    if (received['content-encoding'] !== undefined && received['content-encoding'] !== 'identity') {
      throw dropped(answer, 'it compressed its response without being asked to')
    }
    if (status === 200) {
      return streamed(
        call,
        canListTools(call.request, call.message) ? await this.#checked(call, answer) : answer,
        headers,
      )
    }
    const body = await bodyOf(answer)
    if (status === 202 || status === 204) {
      call.end('succeeded')
      return { kind: 'body', status, headers, body: Buffer.alloc(0) }
    }
    const text = redactSecrets(body.toString('utf8'), call.target)
    // A client needs these responses to negotiate a version, to start a new session, or to detect that GET is unsupported.
    if ([400, 404, 405].includes(status) && (isProtocolError(text) || status !== 400)) {
      call.end('succeeded')
      headers['content-type'] = isProtocolError(text) ? 'application/json' : 'text/plain; charset=utf-8'
      return { kind: 'body', status, headers, body: Buffer.from(text) }
    }
    // A status below 500 is a reaction to the request of the client, not an outage of the upstream.
    if (status < 500) call.end('rejected')
    throw new Refusal('upstream_failed', {
      upstream: call.target.name,
      problem: `it answered with status ${status}${status < 400 ? ', a redirect' : ''}: ${excerpt(text)}`,
    })
  }
}

const places = new WeakMap<object, { origin: string; path: string }>()

/** Returns the parts of an address; reading them of the URL each time takes as long as finding the upstream. */
function placeOf(url: Readonly<URL>): { origin: string; path: string } {
  const known = places.get(url)
  if (known) return known
  const place = { origin: url.origin, path: `${url.pathname}${url.search}` }
  places.set(url, place)
  return place
}

const isNamed = (tool: unknown): tool is { name: string } =>
  typeof (tool as { name?: unknown } | null)?.name === 'string'
