import { Readable } from 'node:stream'
import type { Agent } from 'undici'
import { monotonicMs } from '../base/clock.ts'
import { Refusal } from '../base/errors.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'
import type { CircuitBreaker } from './breaker.ts'
import { type Credentials, redactSecrets } from './credentials.ts'
import { asEvent, discardPartialEvent, EventBoundary, errorEvent } from './events.ts'
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
import { toRefusal, UpstreamTimeout } from './failures.ts'
import { isRestricted, requireAllowed, type Sketch, sketchOf, tryParse } from './message.ts'
import type { UpstreamSessions } from './sessions.ts'

/** The response to the client. */
export type RelayReply =
  | { kind: 'body'; status: number; headers: Record<string, string>; body: Uint8Array }
  | {
      kind: 'stream'
      headers: Record<string, string>
      pieces: AsyncGenerator<string | Uint8Array, void, undefined>
      /** Returns whether the stream is between two events, so that a comment can be added. */
      isBetween(): boolean
      /** Ends a response whose pieces are not read. */
      discard(): void
    }

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
  core: Pick<Core, 'countUpstreamCall'>
  agent: Agent
  credentials: Credentials
  breaker: CircuitBreaker
  sessions: UpstreamSessions
  version: string
}

/** Forwards messages to upstreams, and streams their responses back. */
export class Relay {
  readonly #deps: RelayDeps
  /** Number of calls in progress, by ID of the upstream, and by that ID with the one of the key. */
  readonly #calls = new Map<string, number>()

  constructor(deps: RelayDeps) {
    this.#deps = deps
  }

  /**
   * Sends one request to an upstream.
   * @returns the response, as soon as its headers have arrived.
   * @throws Refusal `upstream_failed`, `upstream_timeout`, `upstream_misconfigured`, `upstream_tool_denied`,
   * `upstream_full`, `invalid_request`.
   */
  async relay(caller: Caller, target: UpstreamTarget, request: RelayRequest): Promise<RelayReply> {
    const call = this.#begin(caller, target, request)
    try {
      const answer = await this.#send(call)
      return await this.#toReply(call, answer)
    } catch (error) {
      try {
        const refusal = toRefusal(error, target)
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
    const counted = [
      [id, callsMax],
      [`${id} ${caller.keyId}`, callsOfKeyMax],
    ] as const
    for (const [of, limit] of counted) {
      if ((this.#calls.get(of) ?? 0) >= limit) {
        throw new Refusal('upstream_full', { upstream: name, limit, retryAfterSeconds })
      }
    }
    const message = request.body.length === 0 ? undefined : tryParse(request.body)
    if (request.method === 'POST' && isRestricted(target)) requireAllowed(message, target)
    const waitSeconds = this.#deps.breaker.enter(id)
    if (waitSeconds > 0) {
      const problem = 'it failed several times in a row'
      throw new Refusal('upstream_failed', { upstream: name, problem, retryAfterSeconds: waitSeconds })
    }
    for (const [of] of counted) this.#calls.set(of, (this.#calls.get(of) ?? 0) + 1)
    const startMs = monotonicMs()
    const sketch = sketchOf(message)
    let bytes = request.body.length
    let hasEnded = false
    return {
      ...{ caller, target, request, message, sketch },
      count: (more) => {
        bytes += more
      },
      end: (outcome) => {
        if (hasEnded) return
        hasEnded = true
        for (const [of] of counted) {
          const left = (this.#calls.get(of) ?? 1) - 1
          if (left === 0) this.#calls.delete(of)
          else this.#calls.set(of, left)
        }
        this.#deps.breaker.leave(id, outcome === 'rejected' ? 'succeeded' : outcome)
        if (sketch.method === '') return
        const latencyMs = monotonicMs() - startMs
        this.#deps.core.countUpstreamCall(caller, {
          ...{
            upstream: name,
            tool: target.listed.has(sketch.tool) ? sketch.tool : '',
            failed: outcome === 'failed' || outcome === 'rejected',
            latencyMs,
            bytes,
          },
        })
      },
    }
  }

  /** Sends the message. If the upstream requires a session and the client has none, uses a session of the gateway. */
  async #send(call: Call): Promise<UpstreamAnswer> {
    const { target, caller, request, sketch } = call
    const needsOwn =
      request.method === 'POST' && sketch.method !== 'initialize' && request.headers['mcp-session-id'] === undefined
    const isModern = request.headers['mcp-method'] !== undefined
    if (!needsOwn || isModern) return this.#request(call, {})
    const { sessions } = this.#deps
    const known = sessions.get(target.id, caller.keyId)
    const answer = await this.#request(call, known ? sessionHeaders(known) : {})
    if (answer.status !== 400 && answer.status !== 404) return answer
    // The upstream rejected the request before executing it: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
    sessions.delete(target.id, caller.keyId)
    const refused = await bodyOf(answer)
    const session = await this.#openSession(call)
    if (session === undefined) return { ...answer, body: Readable.from([refused]) }
    sessions.set(target.id, caller.keyId, session)
    return this.#request(call, sessionHeaders(session))
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

  #post(call: Call, message: object, headers: Record<string, string>): Promise<UpstreamAnswer> {
    const body = Buffer.from(JSON.stringify(message))
    return this.#request({ ...call, request: { ...call.request, headers: {}, body }, message }, headers)
  }

  async #request(call: Call, more: Record<string, string>): Promise<UpstreamAnswer> {
    const { target, request, message } = call
    const { url, headers: own, intoBody } = this.#deps.credentials.authorize(target)
    const { timeoutMs } = target
    const timeout = new AbortController()
    const timer = setTimeout(() => timeout.abort(new UpstreamTimeout()), timeoutMs)
    const isLong = request.method === 'GET'
    try {
      const { statusCode, headers, body } = await this.#deps.agent.request({
        ...{ origin: url.origin, path: `${url.pathname}${url.search}`, method: request.method },
        headers: { ...passedOn(request), ...more, ...own },
        body: request.method === 'POST' ? bodyToSend(request.body, message, target, intoBody) : null,
        signal: AbortSignal.any([request.signal, timeout.signal]),
        headersTimeout: 0,
        // The stream of a GET is silent until the upstream sends a message.
        bodyTimeout: isLong ? 0 : idleMs,
      })
      return { status: statusCode, headers, body }
    } finally {
      clearTimeout(timer)
    }
  }

  async #toReply(call: Call, answer: UpstreamAnswer): Promise<RelayReply> {
    const { status, headers: received } = answer
    const headers = pick(received)
    if (received['content-encoding'] !== undefined && received['content-encoding'] !== 'identity') {
      throw dropped(answer, 'it compressed its response without being asked to')
    }
    if (status === 200) return this.#stream(call, answer, headers)
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

  #stream(call: Call, { headers: received, body }: UpstreamAnswer, headers: Record<string, string>): RelayReply {
    const type = received['content-type'] ?? ''
    const boundary = new EventBoundary()
    const discard = () => {
      call.end('neutral')
      body.on('error', () => {}).destroy()
    }
    if (type.startsWith('text/event-stream')) {
      headers['content-type'] = 'text/event-stream'
      const pieces = events(call, body, boundary)
      return { kind: 'stream', headers, pieces, isBetween: () => boundary.isBetween, discard }
    }
    const wantsJson = /\bapplication\/json\b/i.test(call.request.headers.accept ?? '')
    headers['content-type'] = wantsJson ? 'application/json; charset=utf-8' : 'text/event-stream'
    const pieces = plain(call, wantsJson ? body : asEvent(body))
    return { kind: 'stream', headers, pieces, isBetween: () => false, discard }
  }
}

/** The outcome of a call. `rejected`: the upstream responded with a status below 500; `neutral`: unknown. */
type Outcome = 'succeeded' | 'rejected' | 'failed' | 'neutral'

/** One message that is being relayed. */
interface Call {
  caller: Caller
  target: UpstreamTarget
  request: RelayRequest
  /** The parsed body; `undefined` if it is empty or not JSON. */
  message: unknown
  sketch: Sketch
  /** Adds bytes of the response to the usage. */
  count(bytes: number): void
  /** Records the outcome and the usage. Only the first call has an effect. */
  end(outcome: Outcome): void
}

/** Yields an event stream as it arrives. If the upstream interrupts it, yields an error as the response to the request. */
async function* events(
  call: Call,
  body: Readable,
  boundary: EventBoundary,
): AsyncGenerator<string | Uint8Array, void, undefined> {
  let outcome: Outcome = 'succeeded'
  try {
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      call.count(piece.length)
      boundary.add(piece)
      yield piece
    }
  } catch (error) {
    outcome = 'neutral'
    if (call.request.signal.aborted) return
    outcome = 'failed'
    const { message } = toRefusal(error, call.target)
    if (!boundary.isBetween) yield discardPartialEvent
    yield errorEvent(call.sketch.id, -32603, message)
  } finally {
    // Also reached when the reader has found its result and stops.
    call.end(outcome)
    body.destroy()
  }
}

/** Yields a body as it arrives. @throws Refusal if the upstream interrupts it, which closes the connection to the client. */
async function* plain(
  call: Call,
  body: AsyncIterable<string | Uint8Array>,
): AsyncGenerator<string | Uint8Array, void, undefined> {
  let outcome: Outcome = 'succeeded'
  try {
    for await (const piece of body) {
      call.count(piece.length)
      yield piece
    }
  } catch (error) {
    outcome = call.request.signal.aborted ? 'neutral' : 'failed'
    throw toRefusal(error, call.target)
  } finally {
    call.end(outcome)
  }
}
