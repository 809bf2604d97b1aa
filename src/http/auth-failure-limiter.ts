/** Failures per network and window that are answered with 401; further ones get 429. */
const failuresMax = 3
const windowMs = 60_000

/** A few megabytes at most. An attacker with more addresses than this would not be slowed by counting them. */
const addressesMax = 10_000

/**
 * Counts failed authentications per network. It changes only how a failure is answered: success is never counted or
 * delayed, so one client cannot lock out another behind the same address.
 */
export class AuthFailureLimiter {
  /** Times of the counted failures, oldest first. Addresses are ordered by their latest failure. */
  readonly #times = new Map<string, number[]>()

  /**
   * Counts a failure.
   * @param nowMs of a monotonic clock.
   * @returns 0 where it is answered with 401, otherwise the seconds after which the next one would be.
   */
  count(address: string, nowMs: number): number {
    const recent = (this.#times.get(address) ?? []).filter((timeMs) => timeMs > nowMs - windowMs)
    const [oldest = nowMs] = recent
    // Failures beyond the limit are not counted, so a client that waits is answered with 401 again.
    if (recent.length >= failuresMax) return Math.ceil((oldest + windowMs - nowMs) / 1000)
    this.#times.delete(address)
    this.#times.set(address, [...recent, nowMs])
    this.#forget(nowMs)
    return 0
  }

  get size(): number {
    return this.#times.size
  }

  #forget(nowMs: number): void {
    for (const [address, times] of this.#times) {
      const isOver = (times.at(-1) ?? 0) <= nowMs - windowMs
      if (!isOver && this.#times.size <= addressesMax) return
      this.#times.delete(address)
    }
  }
}
