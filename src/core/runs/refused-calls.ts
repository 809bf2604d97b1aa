import { BackgroundJob } from '../../base/background-job.ts'
import { timestamp } from '../../base/clock.ts'
import type { Refusal } from '../../base/errors.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import type { UsageRow } from '../../store/admin-rows.ts'
import type { Store } from '../../store/store.ts'
import { dayOf } from '../../store/usage.ts'

/** Maximum time that counts stay in memory. A process that is killed loses the counts of this time. */
const writeEveryMs = 1_000

type Count = Pick<UsageRow, 'orgId' | 'day' | 'keyId' | 'refused'>

/**
 * Counts calls that were refused before they ran. A refused call has no row of its own, so that a client that repeats it in
 * a loop does not fill the database.
 */
export class RefusedCalls {
  readonly #store: Store
  readonly #metrics: Metrics
  readonly #job: BackgroundJob
  /** Counts that were not written yet; at most one entry per key and day. */
  #counts = new Map<string, Count>()

  constructor({ store, metrics, log }: { store: Store; metrics: Metrics; log: Log }) {
    this.#store = store
    this.#metrics = metrics
    this.#job = new BackgroundJob({
      everyMs: writeEveryMs,
      work: () => this.#write(),
      onFault: (error) => fault(error, log),
    })
  }

  count({ orgId, keyId }: { orgId: string; keyId: string }, { code }: Refusal): void {
    this.#metrics.refused(code)
    this.#add({ orgId, keyId, day: dayOf(timestamp()), refused: 1 })
  }

  start(): void {
    this.#job.start()
  }

  /** Writes the remaining counts and stops. */
  async stop(): Promise<void> {
    await this.#job.run()
    await this.#job.stop()
  }

  #add(count: Count): void {
    const name = `${count.keyId} ${count.day}`
    const known = this.#counts.get(name)
    if (known) known.refused += count.refused
    else this.#counts.set(name, count)
  }

  async #write(): Promise<void> {
    if (this.#counts.size === 0) return
    const counts = [...this.#counts.values()]
    this.#counts = new Map()
    try {
      await this.#store.usage.addRefused(counts)
    } catch (error) {
      for (const count of counts) this.#add(count)
      throw error
    }
  }
}
