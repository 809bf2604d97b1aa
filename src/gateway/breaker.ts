import { monotonicMs } from '../base/clock.ts'

/** Failures in a row after which an upstream is not called for a while. */
const failuresMax = 5
const pauseMs = 5_000
const pauseMaxMs = 60_000

interface Circuit {
  failures: number
  /** No call before this time. */
  closedUntilMs: number
  isProbing: boolean
}

/**
 * Stops calling an upstream that fails repeatedly. After a pause one call is let through: if it succeeds, all are; if it
 * fails, the pause doubles.
 */
export class CircuitBreaker {
  readonly #circuits = new Map<string, Circuit>()
  readonly #now: () => number

  constructor(now: () => number = monotonicMs) {
    this.#now = now
  }

  /** @returns how many seconds to wait before the next call; 0 if this one can be made. */
  enter(upstream: string): number {
    const circuit = this.#circuits.get(upstream)
    if (circuit === undefined || circuit.failures < failuresMax) return 0
    const waitMs = circuit.closedUntilMs - this.#now()
    if (waitMs > 0) return Math.ceil(waitMs / 1_000)
    if (circuit.isProbing) return 1
    circuit.isProbing = true
    return 0
  }

  /** Records how a call ended. `neutral`: the client left before it was known. */
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
