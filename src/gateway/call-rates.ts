import { LRUCache } from 'lru-cache'
import { monotonicMs } from '../base/clock.ts'
import { Refusal } from '../base/errors.ts'
import type { Caller } from '../core/caller.ts'

const minuteMs = 60_000
/** Maximum number of keys whose rate is known. A key that is forgotten has been silent for longer than the others. */
const keysMax = 10_000

/** Limits the requests of keys to upstreams per minute. A key that was silent for a minute can use its limit at once. */
export class CallRates {
  readonly #keys = new LRUCache<string, { left: number; atMs: number }>({ max: keysMax })
  readonly #now: () => number

  constructor(now: () => number = monotonicMs) {
    this.#now = now
  }

  /** Counts requests. @throws Refusal `upstream_rate_limited`. */
  count({ keyId, upstreamPolicy }: Pick<Caller, 'keyId' | 'upstreamPolicy'>, requests: number): void {
    const limit = upstreamPolicy?.calls_per_minute
    if (limit === undefined || requests === 0) return
    const atMs = this.#now()
    const known = this.#keys.get(keyId) ?? { left: limit, atMs }
    const left = Math.min(limit, known.left + ((atMs - known.atMs) * limit) / minuteMs)
    if (left < requests) {
      this.#keys.set(keyId, { left, atMs })
      const retryAfterSeconds = Math.max(1, Math.ceil(((requests - left) * minuteMs) / limit / 1_000))
      throw new Refusal('upstream_rate_limited', { limit, retryAfterSeconds })
    }
    this.#keys.set(keyId, { left: left - requests, atMs })
  }
}
