import type { Slot } from '../../engine/slots/slot.ts'

/** Processor time that background activity such as timers of an interpreter may use in one interval, in seconds. */
const idleSeconds = 0.05

/** Gives back pages of files that a sandbox has read or written, once each time it has become idle. */
export class IdleMemory {
  readonly #slot: Pick<Slot, 'cpuSeconds' | 'reclaim'>
  readonly #failed: (error: unknown) => void
  readonly #timer: NodeJS.Timeout
  #lastSeconds = 0
  #isGivenBack = false

  /** @param afterMs how long a sandbox must be idle; it can be twice as long until it is noticed. */
  constructor(slot: Pick<Slot, 'cpuSeconds' | 'reclaim'>, afterMs: number, failed: (error: unknown) => void) {
    this.#slot = slot
    this.#failed = failed
    this.#timer = setInterval(() => this.#look(), afterMs)
    this.#timer.unref()
  }

  /** It is idle for certain. */
  giveBack(): void {
    this.#isGivenBack = true
    this.#slot.reclaim().catch(this.#failed)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #look(): void {
    let seconds: number
    try {
      seconds = this.#slot.cpuSeconds
    } catch {
      this.stop() // Its slot was lost, and its end is on the way.
      return
    }
    const wasActive = seconds - this.#lastSeconds > idleSeconds
    this.#lastSeconds = seconds
    if (wasActive) this.#isGivenBack = false
    else if (!this.#isGivenBack) this.giveBack()
  }
}
