import type { Agent } from 'undici'
import { Refusal } from '../base/errors.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import type { FoundTool, OfferedUpstream } from '../core/upstreams/upstreams.ts'
import { CircuitBreaker } from './breaker.ts'
import { type CallOutcome, callId, readOutcome, type UpstreamProgress } from './call.ts'
import { CallRates } from './call-rates.ts'
import { ConnectedUpstreams } from './connected-upstreams.ts'
import { Credentials } from './credentials.ts'
import type { RelayRequest } from './exchange.ts'
import { AccessTokens } from './oauth/access-tokens.ts'
import { Relay } from './relay.ts'
import type { RelayReply } from './reply.ts'
import { UpstreamSessions } from './sessions.ts'
import type { Authorization } from './sse/connection.ts'
import { sseConnector } from './sse/connector.ts'
import { stdioConnector } from './stdio/connector.ts'
import type { TraceContext } from './trace-context.ts'

type GatewayCore = Pick<
  Core,
  | 'upstreams'
  | 'upstreamCredentials'
  | 'upstreamPrograms'
  | 'announceUpstreamChange'
  | 'noteUpstreamUse'
  | 'seenTools'
  | 'countUpstreamCall'
  | 'tracing'
>

/** Connects keys to the MCP servers that their organization has registered. */
export class Gateway {
  readonly #core: GatewayCore
  readonly #relay: Relay
  readonly #sse: ConnectedUpstreams<Authorization>
  readonly #stdio: ConnectedUpstreams<TraceContext>

  /** @param agent connects to upstreams; the caller closes it. @param version of this server, which upstreams receive. */
  constructor(core: GatewayCore, agent: Agent, version: string) {
    this.#core = core
    const credentials = new Credentials()
    this.#sse = new ConnectedUpstreams(sseConnector(agent, credentials), version)
    this.#stdio = new ConnectedUpstreams(stdioConnector(core.upstreamPrograms), version)
    this.#relay = new Relay({
      ...{ core, agent, version, credentials, connected: { sse: this.#sse, stdio: this.#stdio } },
      ...{ breaker: new CircuitBreaker(), sessions: new UpstreamSessions() },
      rates: new CallRates(),
      tokens: new AccessTokens(core.upstreamCredentials, agent),
    })
  }

  /** Closes the sessions with upstreams. */
  close(): void {
    this.#relay.close()
    this.#sse.close()
    this.#stdio.close()
  }

  /**
   * Sends one request to an upstream; see `Relay`.
   * @throws Refusal `upstream_unknown`, `permission_denied` and those of `Relay`.
   */
  async relay(caller: Caller, upstream: string, request: RelayRequest): Promise<RelayReply> {
    return this.#relay.relay(caller, await this.#core.upstreams.target(caller, upstream), request)
  }

  /** Lists the upstreams that the caller may use. @throws Refusal `permission_denied`. */
  list(caller: Caller): Promise<OfferedUpstream[]> {
    return this.#core.upstreams.list(caller)
  }

  /** Searches the tools that the caller may use for any of some words, best first. @throws Refusal `permission_denied`. */
  async search(caller: Caller, query: string): Promise<FoundTool[]> {
    return (await this.#core.upstreams.search(caller, query, 'any')).filter(({ tool }) => tool !== '')
  }

  /**
   * Calls a tool of an upstream and reads its whole response. Refuses requests of the upstream to the client.
   * @param onProgress called for each progress notification; `undefined` requests none.
   * @returns the result, or the error of the upstream.
   * @throws Refusal `upstream_unknown`, `permission_denied` and those of `Relay`.
   */
  async callTool(
    caller: Caller,
    { upstream, tool, given }: { upstream: string; tool: string; given: unknown },
    signal: AbortSignal,
    onProgress: ((progress: UpstreamProgress) => Promise<void>) | undefined,
  ): Promise<CallOutcome> {
    const _meta = onProgress && { progressToken: callId }
    const params = { name: tool, arguments: given ?? {}, ...(_meta && { _meta }) }
    return this.#call(caller, { upstream, method: 'tools/call', params }, signal, onProgress)
  }

  /**
   * Sends another request to an upstream, and reads its whole response.
   * @returns its result.
   * @throws Refusal as `callTool`; `upstream_failed` with the error of the upstream.
   */
  async request(
    caller: Caller,
    asked: { upstream: string; method: string; params: object },
    signal: AbortSignal,
  ): Promise<Record<string, unknown>> {
    const outcome = await this.#call(caller, asked, signal, undefined)
    if (outcome.kind === 'result') return outcome.result
    const problem = `${outcome.message.slice(0, 300).replace(/\.$/, '')} (${outcome.code})`
    throw new Refusal('upstream_failed', { upstream: asked.upstream, problem })
  }

  async #call(
    caller: Caller,
    { upstream, method, params }: { upstream: string; method: string; params: object },
    signal: AbortSignal,
    onProgress: ((progress: UpstreamProgress) => Promise<void>) | undefined,
  ): Promise<CallOutcome> {
    const post = (message: object) =>
      this.relay(caller, upstream, {
        ...{ method: 'POST', signal, body: Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message })) },
        headers: { accept: 'application/json, text/event-stream' },
      })
    const reply = await post({ id: callId, method, params })
    const error = { code: -32601, message: 'This gateway cannot pass requests of a server on to the client.' }
    return readOutcome(upstream, reply, onProgress ?? (async () => {}), async (id) => {
      const answer = await post({ id, error })
      if (answer.kind === 'stream') answer.discard()
    })
  }

  /** Checks that the caller may use the upstream. @throws Refusal `upstream_unknown`, `permission_denied`. */
  async requireAccess(caller: Caller, upstream: string): Promise<void> {
    await this.#core.upstreams.target(caller, upstream)
  }
}
