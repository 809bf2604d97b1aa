import type { Agent } from 'undici'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import { CircuitBreaker } from './breaker.ts'
import { Credentials } from './credentials.ts'
import type { RelayRequest } from './exchange.ts'
import { Relay, type RelayReply } from './relay.ts'
import { UpstreamSessions } from './sessions.ts'

/** Reaches the MCP servers that organizations have registered. */
export class Gateway {
  readonly #core: Pick<Core, 'upstreams' | 'countUpstreamCall'>
  readonly #relay: Relay

  /** @param agent connects to upstreams; closed by the caller. */
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

  /** @throws Refusal `upstream_unknown`, `permission_denied` where the caller may no longer use the upstream. */
  async requireAccess(caller: Caller, upstream: string): Promise<void> {
    await this.#core.upstreams.target(caller, upstream)
  }
}
