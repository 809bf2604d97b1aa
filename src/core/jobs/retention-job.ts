import { setTimeout as sleep } from 'node:timers/promises'
import { timestamp } from '../../base/clock.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Store } from '../../store/store.ts'

/** How long what a run printed can be asked for after its end, where its org does not keep it. */
const outputLifeMs = 24 * 60 * 60 * 1000
const everyMs = 10 * 60 * 1000
/** Runs deleted in one transaction: a few milliseconds. */
const batchRuns = 200
/** Between two batches others get their turn. */
const restMs = 20

/** Deletes what nobody may ask for any more, again and again. */
export class RetentionJob {
  readonly #store: Store
  readonly #runHistoryMs: number
  readonly #log: Log
  readonly #timer: NodeJS.Timeout
  #going: Promise<void> | undefined
  #stopped = false

  /** @param runHistoryMs how long the rows of runs are kept. */
  constructor(store: Store, runHistoryMs: number, log: Log) {
    this.#store = store
    this.#runHistoryMs = runHistoryMs
    this.#log = log
    this.#timer = setInterval(() => this.#start(), everyMs).unref()
  }

  async stop(): Promise<void> {
    this.#stopped = true
    clearInterval(this.#timer)
    await this.#going
  }

  #start(): void {
    this.#going ??= this.#forget()
      .catch((error: unknown) => void fault(error, this.#log))
      .finally(() => {
        this.#going = undefined
      })
  }

  async #forget(): Promise<void> {
    const now = Date.now()
    await this.#store.forget(timestamp(), new Date(now - outputLifeMs).toISOString())
    await forgetRuns(this.#store, new Date(now - this.#runHistoryMs).toISOString(), () => this.#stopped)
  }
}

/** Deletes every ended run that began before a time, some at a time. @returns how many. */
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
