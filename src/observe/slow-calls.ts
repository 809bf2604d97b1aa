import { timestamp } from '../base/clock.ts'
import { Ring } from './ring.ts'

/** A call that took longer than the threshold. */
export interface SlowCall {
  at: string
  /** What was called, without any value that a client sent: a route, the text of a statement, the name of an upstream. */
  what: string
  ms: number
  /** Trace ID of the request, if it belongs to one. */
  trace_id?: string
  status?: number
}

export interface SlowCallSettings {
  enabled: boolean
  threshold_ms: number
  buffer_size: number
}

/** Largest number of slow calls that are kept. */
export const slowCallsMax = 1_000

const defaults: SlowCallSettings = { enabled: true, threshold_ms: 1_000, buffer_size: 200 }

/** Counts calls, and keeps the latest slow ones. A call that is not slow costs an addition and two comparisons. */
export class SlowCalls {
  readonly #calls: Ring<SlowCall>
  #settings: SlowCallSettings
  #total = 0
  #slow = 0
  #failed = 0
  #totalMs = 0
  #maxMs = 0

  constructor(settings: Partial<SlowCallSettings> = {}) {
    this.#settings = { ...defaults, ...settings }
    this.#calls = new Ring(this.#settings.buffer_size)
  }

  /** Counts a call. @param describe is called only if the call is slow. */
  count(ms: number, isFailure: boolean, describe: () => Omit<SlowCall, 'at' | 'ms'>): void {
    this.#total += 1
    this.#totalMs += ms
    if (isFailure) this.#failed += 1
    if (ms > this.#maxMs) this.#maxMs = ms
    if (ms < this.#settings.threshold_ms || !this.#settings.enabled) return
    this.#slow += 1
    this.#calls.add({ at: timestamp(), ms: Math.round(ms), ...describe() })
  }

  get settings(): SlowCallSettings {
    return { ...this.#settings }
  }

  configure(settings: Partial<SlowCallSettings>): SlowCallSettings {
    this.#settings = { ...this.#settings, ...settings }
    if (settings.buffer_size !== undefined) this.#calls.resize(settings.buffer_size)
    return this.settings
  }

  /** Returns the latest slow calls, newest first. @param since ISO 8601; earlier ones are left out. */
  latest({ limit = 50, since = '' }: { limit?: number | undefined; since?: string | undefined } = {}): SlowCall[] {
    return this.#calls
      .newest()
      .filter(({ at }) => at >= since)
      .slice(0, limit)
  }

  /** Returns the number of slow calls that are kept and not older than a time. */
  recent(withinMs: number): number {
    return this.latest({ limit: slowCallsMax, since: new Date(Date.now() - withinMs).toISOString() }).length
  }

  /** Since the start, or since they were cleared. */
  get sums(): { total: number; slow: number; failed: number; sumMs: number } {
    return { total: this.#total, slow: this.#slow, failed: this.#failed, sumMs: this.#totalMs }
  }

  get stats() {
    return {
      total: this.#total,
      slow: this.#slow,
      failed: this.#failed,
      average_ms: this.#total === 0 ? 0 : rounded(this.#totalMs / this.#total),
      max_ms: rounded(this.#maxMs),
      kept: this.#calls.size,
    }
  }

  /** Forgets the kept calls and the sums. */
  clear(): void {
    this.#calls.clear()
    this.#total = this.#slow = this.#failed = this.#totalMs = this.#maxMs = 0
  }
}

const rounded = (value: number): number => Math.round(value * 100) / 100
