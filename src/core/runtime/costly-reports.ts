import { LRUCache } from 'lru-cache'

/** Time for which a report is returned again, in milliseconds. */
const keptMs = 60_000
/** Kinds of reports, of this process and of the runners of the last minute. */
const keptMax = 32

/**
 * Reports whose making blocks a process for tens of milliseconds, such as the start of a profile. Each is made at most once a
 * minute, so that the runs of a busy server do not notice how often an administrator asks.
 */
export class CostlyReports {
  readonly #kept = new LRUCache<string, object>({ max: keptMax, ttl: keptMs })

  /**
   * Returns the last report of this kind, with its age as `seconds_ago`; makes one if the last is a minute old.
   * @param kind names the report and the process.
   * @throws what `make` throws; then nothing is kept.
   */
  async get(kind: string, make: () => Promise<object>): Promise<object> {
    const kept = this.#kept.get(kind)
    if (kept !== undefined) {
      const ageMs = keptMs - this.#kept.getRemainingTTL(kind)
      return { ...kept, seconds_ago: Math.round(ageMs / 1000) }
    }
    const report = await make()
    this.#kept.set(kind, report)
    return { ...report, seconds_ago: 0 }
  }
}
