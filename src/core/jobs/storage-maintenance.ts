import { Refusal } from '../../base/errors.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Profiles } from '../access/profiles.ts'
import type { Threads } from '../storage/threads.ts'
import type { Volumes } from '../storage/volumes.ts'

/** How soon what a command or a crash left is finished; most looks find nothing, with two small queries. */
const settleEveryMs = 2_000
/** Days count, not minutes. */
const expireEveryMs = 10 * 60_000

/** What nobody waits for: ends what was begun with threads and volumes, and removes threads that nobody used for long. */
export class StorageMaintenance {
  readonly #threads: Threads
  readonly #volumes: Volumes
  readonly #profiles: Profiles
  readonly #log: Log
  readonly #timers: NodeJS.Timeout[] = []
  #working: Promise<void> | undefined

  constructor(threads: Threads, volumes: Volumes, profiles: Profiles, log: Log) {
    this.#threads = threads
    this.#volumes = volumes
    this.#profiles = profiles
    this.#log = log
  }

  start(): void {
    this.#timers.push(setInterval(() => this.#work(() => this.#settle()), settleEveryMs).unref())
    this.#timers.push(setInterval(() => this.#work(() => this.#expire()), expireEveryMs).unref())
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer)
    await this.#working
  }

  /** One thing at a time. A runner that is away is asked again with the next look. */
  #work(work: () => Promise<void>): void {
    this.#working ??= work()
      .catch((error: unknown) => {
        if (!(error instanceof Refusal)) fault(error, this.#log)
      })
      .finally(() => {
        this.#working = undefined
      })
  }

  async #settle(): Promise<void> {
    await this.#threads.settle()
    await this.#volumes.settle(this.#profiles, ({ orgId, slug }, profile) => {
      this.#log.warn({ org_id: orgId, volume: slug, profile }, 'a volume was not removed, since a profile mounts it')
    })
  }

  async #expire(): Promise<void> {
    const removed = await this.#threads.expire((orgId, profile) => this.#daysOf(orgId, profile))
    if (removed > 0) this.#log.info({ threads: removed }, 'threads that nobody used for long were removed')
  }

  /** A thread whose profile is gone is kept as long as the one named default says. */
  async #daysOf(orgId: string, name: string | null): Promise<number | null> {
    const profile =
      (name !== null && (await this.#profiles.get(orgId, name))) || (await this.#profiles.get(orgId, 'default'))
    return profile?.storage.kind === 'threads' ? profile.storage.retentionDays : null
  }
}
