import { LRUCache } from 'lru-cache'
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

/** Time for which a queue that was full is taken to be full. */
const fullForMs = 20
/** Organizations beyond this number are refused one call at a time. */
const fullQueuesMax = 1_000

type Count = Pick<UsageRow, 'orgId' | 'day' | 'keyId' | 'refused'>

/**
 * Counts calls that were refused before they ran. A refused call has no row of its own, so that a client that repeats it in
 * a loop does not fill the database.
 */
export class RefusedCalls {
  readonly #store: Store
  readonly #metrics: Metrics
  readonly #job: BackgroundJob
  /** Organizations whose queue was full just now. */
  readonly #full = new LRUCache<string, Refusal>({ max: fullQueuesMax, ttl: fullForMs })
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

  count({ orgId, keyId }: { orgId: string; keyId: string }, refusal: Refusal): void {
    const { code, details } = refusal
    this.#metrics.refused(code)
    // Where no run waits, a place can become free at any moment, and would stay free.
    if (code === 'queue_full' && details.waiting !== 0 && !this.#full.has(orgId)) this.#full.set(orgId, refusal)
    this.#add({ orgId, keyId, day: dayOf(timestamp()), refused: 1 })
  }

  /**
   * To be called before anything is written for a run. A flood of calls that find the same full queue costs no writes: for some
   * milliseconds after one was refused, the others are refused in the same way. Runs wait, so no place stays free meanwhile.
   * @throws Refusal `queue_full`.
   */
  expectRoom(orgId: string): void {
    const refusal = this.#full.get(orgId)
    if (refusal !== undefined) throw refusal
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
