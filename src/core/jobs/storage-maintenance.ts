import { BackgroundJob } from '../../base/background-job.ts'
import { Refusal } from '../../base/errors.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Profiles } from '../access/profiles.ts'
import type { Threads } from '../storage/threads.ts'
import type { Volumes } from '../storage/volumes.ts'

/** Interval for completing the work of commands and crashed processes. Most rounds need only two small queries. */
const settleEveryMs = 2_000
const settleRetryMaxMs = 5_000
/** Interval for removing expired threads. Retention times are in days, so it can be long. */
const expireEveryMs = 10 * 60_000

/** Completes interrupted work on threads and volumes, and removes threads whose retention time is over. */
export class StorageMaintenance {
  readonly #threads: Threads
  readonly #volumes: Volumes
  readonly #profiles: Profiles
  readonly #log: Log
  readonly jobs: Readonly<Record<'settle' | 'expire', BackgroundJob>>

  constructor(threads: Threads, volumes: Volumes, profiles: Profiles, log: Log) {
    this.#threads = threads
    this.#volumes = volumes
    this.#profiles = profiles
    this.#log = log
    // While no runner is connected, both jobs are refused and retried.
    const onFault = (error: unknown) => error instanceof Refusal || fault(error, log)
    this.jobs = {
      settle: new BackgroundJob({
        everyMs: settleEveryMs,
        retryMaxMs: settleRetryMaxMs,
        work: () => this.#settle(),
        onFault,
      }),
      expire: new BackgroundJob({ everyMs: expireEveryMs, work: () => this.#expire(), onFault }),
    }
  }

  start(): void {
    for (const job of Object.values(this.jobs)) job.start()
  }

  async stop(): Promise<void> {
    await Promise.all(Object.values(this.jobs).map((job) => job.stop()))
  }

  async #settle(): Promise<void> {
    await this.#threads.settle()
    await this.#volumes.settle(this.#profiles, ({ orgId, slug }, profile) => {
      this.#log.warn({ org_id: orgId, volume: slug, profile }, 'volume not removed: a profile mounts it')
    })
  }

  async #expire(): Promise<void> {
    const removed = await this.#threads.expire((orgId, profile) => this.#daysOf(orgId, profile))
    if (removed > 0) this.#log.info({ threads: removed }, 'removed unused threads')
  }

  /** Returns the retention time of a profile, in days. A missing profile is replaced by `default`. */
  async #daysOf(orgId: string, name: string | null): Promise<number | null> {
    const profile =
      (name !== null && (await this.#profiles.get(orgId, name))) || (await this.#profiles.get(orgId, 'default'))
    return profile?.storage.kind === 'threads' ? profile.storage.retentionDays : null
  }
}
