/** Silence that is reported, in heartbeats: several times what a busy process misses. */
const reportedAfter = 5

/**
 * Allowed silence of a process that is not ready yet, in heartbeats: it may open a large database or check filesystems
 * in one step.
 */
const startAllowance = 300

export interface WatchdogEvents {
  /** The process has been silent for some seconds; reported once per silence. */
  silent(beats: number): void
  /** The process has been silent for longer than it may, and must be replaced. */
  expired(beats: number): void
}

/**
 * Notices that a process stopped responding. It counts its own ticks, not the clock: while the whole machine is suspended, no
 * process is late.
 */
export class Watchdog {
  readonly #allowed: number
  readonly #events: WatchdogEvents
  readonly #timer: NodeJS.Timeout
  #isReady = false
  #missed = 0

  /** @param allowedMs allowed silence after the process is ready. @param everyMs interval of the heartbeats. */
  constructor(allowedMs: number, everyMs: number, events: WatchdogEvents) {
    this.#allowed = Math.ceil(allowedMs / everyMs)
    this.#events = events
    this.#timer = setInterval(() => this.#tick(), everyMs)
  }

  heard(): void {
    this.#missed = 0
  }

  /** From now on the shorter limit applies. */
  ready(): void {
    this.#isReady = true
    this.#missed = 0
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #tick(): void {
    this.#missed += 1
    if (this.#isReady && this.#missed === reportedAfter) this.#events.silent(this.#missed)
    if (this.#missed < (this.#isReady ? this.#allowed : startAllowance)) return
    this.stop()
    this.#events.expired(this.#missed)
  }
}
