import { LRUCache } from 'lru-cache'

/** Maximum number of sessions, over all keys and upstreams. */
const sessionsMax = 1_000
const idleMs = 10 * 60_000

export interface UpstreamSession {
  id: string
  protocolVersion: string
}

/**
 * Keeps sessions with upstreams that require one, for clients that send single messages without a session. Keys never
 * share a session, since an upstream may keep state in it.
 */
export class UpstreamSessions {
  readonly #sessions = new LRUCache<string, UpstreamSession>({ max: sessionsMax, ttl: idleMs, updateAgeOnGet: true })

  get(upstream: string, keyId: string): UpstreamSession | undefined {
    return this.#sessions.get(`${upstream} ${keyId}`)
  }

  set(upstream: string, keyId: string, session: UpstreamSession): void {
    this.#sessions.set(`${upstream} ${keyId}`, session)
  }

  delete(upstream: string, keyId: string): void {
    this.#sessions.delete(`${upstream} ${keyId}`)
  }
}
