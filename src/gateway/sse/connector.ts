import type { Agent } from 'undici'
import type { UpstreamTarget } from '../../core/upstreams/upstreams.ts'
import type { Connector } from '../connector.ts'
import type { Credentials } from '../credentials.ts'
import { traceOf } from '../trace-context.ts'
import { type Authorization, SseConnection, StreamRefused } from './connection.ts'

/** A connection without messages is closed after this time. */
const idleMs = 10 * 60_000

/** Returns how to connect to upstreams of the HTTP+SSE transport. */
export const sseConnector = (agent: Agent, credentials: Credentials): Connector<Authorization> => ({
  authorize(target, request) {
    const { url, headers, intoBody } = credentials.authorize(target)
    const { credential } = target.secrets
    const value = credential?.in === 'query' ? url.searchParams.get(credential.name) : null
    const inQuery = (at: URL): URL => {
      if (value !== null) at.searchParams.set(credential!.name, value)
      return at
    }
    return { auth: { headers, inQuery, ...(request && { trace: traceOf(request) }) }, intoBody }
  },
  connect: (target: UpstreamTarget, authorization, refusesRequests) =>
    SseConnection.open(agent, new URL(target.url), { authorization, refusesRequests }),
  statusOf: (error) => (error instanceof StreamRefused ? error.status : undefined),
  fullScope: () => undefined,
  isShared: () => false,
  isSlow: async () => false,
  idleMsOf: () => idleMs,
  what: 'such servers',
})
