import { BackgroundJob } from '../../base/background-job.ts'
import type { Log } from '../../observe/log.ts'
import { keyOf } from '../../storage/filesystem-id.ts'
import type { Mounted } from '../../storage/filesystems.ts'

/** When the files that an answer called changed are on the disk: before the answer, or a few seconds after it. */
export const threadDurabilities = ['answer', 'seconds'] as const
export type ThreadDurability = (typeof threadDurabilities)[number]

/** Pause between two rounds. With the time that a round takes, changed files are stored within five seconds. */
const roundMs = 2_000
/** Syncs at the same time, which the disk combines; they leave most threads of the pool of this process to other work. */
const syncsMax = 4

/** Stores the changed files of threads on the disk. The kernel alone would do so after half a minute. */
export class ChangedThreads {
  readonly #durability: ThreadDurability
  readonly #kept: (mounted: Mounted) => Promise<boolean>
  readonly #changed = new Map<string, Mounted>()
  readonly #job: BackgroundJob

  /** @param kept stores a filesystem on the disk, and returns whether the disk has taken everything. */
  constructor(durability: ThreadDurability, kept: (mounted: Mounted) => Promise<boolean>, log: Log) {
    this.#durability = durability
    this.#kept = kept
    this.#job = new BackgroundJob({
      everyMs: roundMs,
      work: () => this.#round(),
      onFault: (error) => log.error({ err: error }, 'changed threads could not be stored'),
    })
    this.#job.start()
  }

  /** Called before the answer to a run that changed files. @returns false if the disk has lost some of them. */
  async keep(mounted: Mounted): Promise<boolean> {
    if (this.#durability === 'answer') return this.#kept(mounted)
    this.#changed.set(keyOf(mounted.id), mounted)
    return true
  }

  async #round(): Promise<void> {
    const waiting = [...this.#changed.values()]
    this.#changed.clear()
    const store = async () => {
      for (let mounted = waiting.shift(); mounted; mounted = waiting.shift()) await this.#kept(mounted)
    }
    await Promise.all(Array.from({ length: syncsMax }, store))
  }

  async stop(): Promise<void> {
    await this.#job.stop()
  }
}
