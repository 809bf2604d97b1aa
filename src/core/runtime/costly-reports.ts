import { monotonicMs } from '../../base/clock.ts'

/** Time for which a report is returned again, in milliseconds. */
const keptMs = 60_000

interface Kept {
  atMs: number
  report: object
}

/**
 * Reports whose making blocks a process for tens of milliseconds, such as the start of a profile. Each is made at most once a
 * minute, so that the runs of a busy server do not notice how often an administrator asks.
 */
export class CostlyReports {
  readonly #kept = new Map<string, Kept>()

  /**
   * Returns the last report of this kind, with its age as `seconds_ago`; makes one if the last is a minute old.
   * @param kind one of few.
   * @throws what `make` throws; then nothing is kept.
   */
  async get(kind: string, make: () => Promise<object>): Promise<object> {
    const kept = this.#kept.get(kind)
    const ageMs = kept === undefined ? Number.POSITIVE_INFINITY : monotonicMs() - kept.atMs
    if (kept !== undefined && ageMs < keptMs) return { ...kept.report, seconds_ago: Math.round(ageMs / 1000) }
    const report = await make()
    this.#kept.set(kind, { atMs: monotonicMs(), report })
    return { ...report, seconds_ago: 0 }
  }
}
