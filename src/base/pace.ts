/** Time for which bytes may be ahead of their rate, in milliseconds. */
const burstMs = 100

/** Holds bytes to a rate. */
export class Pace {
  /** When the bytes so far are allowed by the rate, on the monotonic clock. */
  #paidUntilMs = 0

  /** @param bytesPerSecond 0 sets no limit. @returns for how many milliseconds no more may follow. */
  count(bytes: number, bytesPerSecond: number): number {
    if (bytesPerSecond === 0) return 0
    const nowMs = performance.now()
    this.#paidUntilMs = Math.max(this.#paidUntilMs, nowMs - burstMs) + (bytes / bytesPerSecond) * 1000
    return Math.max(0, this.#paidUntilMs - nowMs)
  }
}
