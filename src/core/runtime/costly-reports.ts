import { LRUCache } from 'lru-cache'

/** Kinds of reports, of this process and of the latest runners. */
const keptMax = 32

/**
 * Reports whose making blocks a process for up to a tenth of a second, such as a profile of allocations. Each is made at most
 * once in some minutes, so that the runs of a busy server do not notice how often an administrator asks.
 */
export class CostlyReports {
  readonly #kept = new LRUCache<string, { report: object; madeMs: number }>({ max: keptMax })

  /**
   * Returns the last report of this kind, with its age as `seconds_ago`; makes one if the last is too old.
   * @param kind names the report and the process.
   * @param keptMs time for which a report is returned again, in milliseconds.
   * @throws what `make` throws; then nothing is kept.
   */
  async get(kind: string, keptMs: number, make: () => Promise<object>): Promise<object> {
    const kept = this.#kept.get(kind)
    const ageMs = performance.now() - (kept?.madeMs ?? 0)
    if (kept !== undefined && ageMs < keptMs) return { ...kept.report, seconds_ago: Math.round(ageMs / 1000) }
    const report = await make()
    this.#kept.set(kind, { report, madeMs: performance.now() })
    return { ...report, seconds_ago: 0 }
  }
}
