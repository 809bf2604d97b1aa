import { monotonicMs } from '../../../base/clock.ts'

const pauseMs = 500
const pauseMaxMs = 60_000
/** A process that lived longer did not end because of its start. */
const healthyMs = 60_000
const rememberedMax = 1_000

interface Crashes {
  count: number
  atMs: number
  untilMs: number
}

/** Delays the start of programs that end by themselves: the first at once, then after a pause that doubles. */
export class CrashBackoff {
  readonly #crashes = new Map<string, Crashes>()
  readonly #now: () => number

  constructor(now: () => number = monotonicMs) {
    this.#now = now
  }

  /** Number of crashes in a row. */
  count(name: string): number {
    return this.#crashes.get(name)?.count ?? 0
  }

  /** Lists what has crashed within this time, the most crashes in a row first. */
  recent(withinMs: number): { name: string; count: number }[] {
    const sinceMs = this.#now() - withinMs
    return [...this.#crashes]
      .filter(([, { atMs }]) => atMs >= sinceMs)
      .map(([name, { count }]) => ({ name, count }))
      .sort((a, b) => b.count - a.count)
  }

  /** Returns the time until the next start; 0 if it can start now. */
  waitSeconds(name: string): number {
    const { untilMs = 0 } = this.#crashes.get(name) ?? {}
    return Math.max(0, Math.ceil((untilMs - this.#now()) / 1_000))
  }

  /** Records an end that was not requested. @param livedMs time since the start of the process. */
  crashed(name: string, livedMs: number): void {
    if (livedMs >= healthyMs) this.#crashes.delete(name)
    this.failed(name)
  }

  /** Records that a process was ended because it was not used any more. */
  ended(name: string): void {
    this.#crashes.delete(name)
  }

  /** Records a start that failed. */
  failed(name: string): void {
    const count = this.count(name) + 1
    const waitMs = count === 1 ? 0 : Math.min(pauseMs * 2 ** (count - 2), pauseMaxMs)
    this.#crashes.delete(name)
    this.#crashes.set(name, { count, atMs: this.#now(), untilMs: this.#now() + waitMs })
    if (this.#crashes.size > rememberedMax) this.#crashes.delete(this.#crashes.keys().next().value!)
  }
}
