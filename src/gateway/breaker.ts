import { LRUCache } from 'lru-cache'
import { monotonicMs } from '../base/clock.ts'

/** Number of consecutive failures after which an upstream is not called for a pause. */
const failuresMax = 5
const pauseMs = 5_000
const pauseMaxMs = 60_000
/** Maximum number of upstreams, with the credentials of keys, whose failures are known. */
const circuitsMax = 10_000

interface Circuit {
  failures: number
  /** Monotonic time before which no call is made. */
  closedUntilMs: number
  isProbing: boolean
}

/**
 * Stops calls of an upstream that fails repeatedly. After a pause, one call is permitted: if it succeeds, all calls are
 * permitted again; if it fails, the pause doubles, up to `pauseMaxMs`.
 */
export class CircuitBreaker {
  readonly #circuits = new LRUCache<string, Circuit>({ max: circuitsMax })
  readonly #now: () => number

  constructor(now: () => number = monotonicMs) {
    this.#now = now
  }

  /** Requests permission for a call. @returns 0 if it is permitted, otherwise the time to wait, in seconds. */
  enter(upstream: string): number {
    const circuit = this.#circuits.get(upstream)
    if (circuit === undefined || circuit.failures < failuresMax) return 0
    const waitMs = circuit.closedUntilMs - this.#now()
    if (waitMs > 0) return Math.ceil(waitMs / 1_000)
    if (circuit.isProbing) return 1
    circuit.isProbing = true
    return 0
  }

  /** Records the outcome of a permitted call. `neutral`: unknown, for example because the client disconnected. */
  leave(upstream: string, outcome: 'succeeded' | 'failed' | 'neutral'): void {
    const circuit = this.#circuits.get(upstream)
    if (circuit) circuit.isProbing = false
    if (outcome === 'succeeded') this.#circuits.delete(upstream)
    if (outcome !== 'failed') return
    const failures = (circuit?.failures ?? 0) + 1
    const beyond = Math.max(failures - failuresMax, 0)
    const closedUntilMs = this.#now() + Math.min(pauseMs * 2 ** beyond, pauseMaxMs)
    this.#circuits.set(upstream, { failures, closedUntilMs, isProbing: false })
  }
}
