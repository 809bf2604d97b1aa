import { LRUCache } from 'lru-cache'

/** Sessions that are kept for clients that have none of their own. */
const sessionsMax = 1_000
const idleMs = 10 * 60_000

export interface UpstreamSession {
  id: string
  protocolVersion: string
}

/**
 * Sessions with upstreams that require one, for clients that send a single message without a session. They are never
 * shared between keys, since an upstream may keep state in them.
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
