import type { Agent } from 'undici'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import type { OfferedUpstream } from '../core/upstreams/upstreams.ts'
import { CircuitBreaker } from './breaker.ts'
import { type CallOutcome, callId, readOutcome, type UpstreamProgress } from './call.ts'
import { Credentials } from './credentials.ts'
import type { RelayRequest } from './exchange.ts'
import { Relay, type RelayReply } from './relay.ts'
import { UpstreamSessions } from './sessions.ts'

/** Connects keys to the MCP servers that their organization has registered. */
export class Gateway {
  readonly #core: Pick<Core, 'upstreams' | 'countUpstreamCall'>
  readonly #relay: Relay

  /** @param agent connects to upstreams; the caller closes it. @param version of this server, which upstreams receive. */
  constructor(core: Pick<Core, 'upstreams' | 'countUpstreamCall'>, agent: Agent, version: string) {
    this.#core = core
    this.#relay = new Relay({
      ...{ core, agent, version },
      ...{ credentials: new Credentials(), breaker: new CircuitBreaker(), sessions: new UpstreamSessions() },
    })
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
    const post = (message: object) =>
      this.relay(caller, upstream, {
        ...{ method: 'POST', signal, body: Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message })) },
        headers: { accept: 'application/json, text/event-stream' },
      })
    const _meta = onProgress && { progressToken: callId }
    const params = { name: tool, arguments: given ?? {}, ...(_meta && { _meta }) }
    const reply = await post({ id: callId, method: 'tools/call', params })
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
