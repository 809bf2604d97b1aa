/** AuthFailureLimiter of one address that are answered in full; every further one is told to wait. */
const failuresMax = 3
const windowMs = 60_000

/** A few megabytes at most. Who commands more addresses than this is not slowed by being counted. */
const addressesMax = 10_000

/**
 * Counts failed attempts to authenticate, by address. It only shapes the answer to a failure: what succeeds is never
 * counted and never held up, so that one client cannot lock out another behind the same address.
 */
export class AuthFailureLimiter {
  /** When the counted failures were, oldest first. Addresses are in the order in which their last one was counted. */
  readonly #times = new Map<string, number[]>()

  /**
   * Counts a failure.
   * @param nowMs of a clock that never jumps.
   * @returns 0 while it may be answered in full, otherwise after how many seconds the next one would be.
   */
  count(address: string, nowMs: number): number {
    const recent = (this.#times.get(address) ?? []).filter((timeMs) => timeMs > nowMs - windowMs)
    const [oldest = nowMs] = recent
    // What is told to wait is not counted: who waits as told is answered again.
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
