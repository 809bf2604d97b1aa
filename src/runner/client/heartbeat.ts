/** Interval of the questions whether the runner responds, in milliseconds. */
const everyMs = 1_000

/** Unanswered ticks after which the runner counts as not responding: far more than a busy one needs for an answer. */
const silentAfter = 5

/**
 * Notices that a runner does not respond although its connection is open, for example because its process is stopped. It
 * counts ticks, not the clock, so that nothing is late after the machine was suspended.
 */
export class Heartbeat {
  readonly #ask: () => Promise<void>
  readonly #timer: NodeJS.Timeout
  #asking = false
  #missed = 0

  /** @param ask resolves when the runner has answered, and rejects when no answer can come any more. */
  constructor(ask: () => Promise<void>) {
    this.#ask = ask
    this.#timer = setInterval(() => this.#tick(), everyMs)
    this.#timer.unref()
  }

  /** Whether the runner has left a question unanswered for several seconds. */
  get isSilent(): boolean {
    return this.#missed >= silentAfter
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #tick(): void {
    if (this.#asking) {
      this.#missed += 1
      return
    }
    this.#asking = true
    const answered = () => {
      this.#asking = false
      this.#missed = 0
    }
    this.#ask().then(answered, answered)
  }
}
