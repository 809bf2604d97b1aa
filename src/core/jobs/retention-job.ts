import { setTimeout as sleep } from 'node:timers/promises'
import { BackgroundJob } from '../../base/background-job.ts'
import { timestamp } from '../../base/clock.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Store } from '../../store/store.ts'

/** Time for which the output of an ended run is stored, unless its organization keeps output. */
const outputLifeMs = 24 * 60 * 60 * 1000
const everyMs = 10 * 60 * 1000
/** Maximum number of runs deleted in one transaction, which takes a few milliseconds. */
const batchRuns = 200
/** Pause between two batches, for other work on the database. */
const restMs = 20

/** Deletes runs and output whose retention time is over. */
export class RetentionJob {
  readonly #store: Store
  readonly #runHistoryMs: number
  readonly job: BackgroundJob

  /** @param runHistoryMs retention time of the rows of runs. */
  constructor(store: Store, runHistoryMs: number, log: Log) {
    this.#store = store
    this.#runHistoryMs = runHistoryMs
    this.job = new BackgroundJob({
      everyMs,
      work: (signal) => this.#deleteExpired(signal),
      onFault: (error) => fault(error, log),
    })
  }

  start(): void {
    this.job.start()
  }

  stop(): Promise<void> {
    return this.job.stop()
  }

  async #deleteExpired(signal: AbortSignal): Promise<void> {
    const now = Date.now()
    await this.#store.forget(timestamp(), new Date(now - outputLifeMs).toISOString())
    await forgetRuns(this.#store, new Date(now - this.#runHistoryMs).toISOString(), () => signal.aborted)
  }
}

/** Deletes every ended run that began before a time, in batches. @returns the number of deleted runs. */
export async function forgetRuns(
  store: Store,
  createdBefore: string,
  isStopped: () => boolean = () => false,
): Promise<number> {
  let forgotten = 0
  for (const { id } of await store.orgs.list()) {
    for (let batch = batchRuns; batch === batchRuns && !isStopped(); ) {
      batch = await store.history.forget(id, createdBefore, batchRuns)
      forgotten += batch
      await sleep(restMs)
    }
  }
  return forgotten
}
