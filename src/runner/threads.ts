import { Refusal } from '../base/errors.ts'
import type { ChangedFiles, Ending, Quota, RunSpec, RunThread } from '../base/run.ts'
import type { Slot } from '../engine/slot.ts'
import { Changes } from '../storage/changes.ts'
import { type Attachment, Dock } from '../storage/dock.ts'
import { type FilesystemId, keyOf, type Mounted, usageOf } from '../storage/filesystems.ts'
import { imageBytesFor } from '../storage/images.ts'
import type { WarmFilesystems, WarmLease } from '../storage/warm.ts'

/**
 * With no more room than this a thread holds its quota: so much larger it is made, for the bookkeeping of ext4, which
 * refuses a write while a part of that is still free (measured: 58 KB of 8 MiB, 975 KB of 1 GiB).
 */
const fullBytes = (totalBytes: number): number => 128 * 1024 + totalBytes / 1024

/** Some ten megabytes. */
const fencesMax = 100_000

/** In the dock of a slot, which has one run at a time. */
const homeEntry = 'home'

interface Use {
  runId: string | undefined
  writers: number
}

/**
 * The threads of this runner: who may use one when. A run has its thread for itself until its jail is dead; files may be
 * read meanwhile, and written by several at once while there is no run.
 */
export class Threads {
  readonly #warm: WarmFilesystems
  readonly #uses = new Map<string, Use>()
  readonly #changes = new Changes()
  /** Highest fencing number seen. Kept for this life of the runner: no jail outlives it. */
  readonly #fences = new Map<string, number>()

  constructor(warm: WarmFilesystems) {
    this.#warm = warm
  }

  /**
   * Gives a thread to a run, at once or not at all.
   * @throws Refusal thread_busy when another has it, or this one's number is stale.
   */
  claim({ orgId, runId }: RunSpec, thread: RunThread): ThreadClaim {
    const id: FilesystemId = { area: 'threads', org: orgId, name: thread.id }
    const key = keyOf(id)
    if (this.#uses.has(key) || thread.fence < (this.#fences.get(key) ?? 0)) throw busy(id)
    this.#remember(key, thread.fence)
    this.#uses.set(key, { runId, writers: 0 })
    return new ThreadClaim(id, thread.quota, this.#warm, this.#changes, () => this.#uses.delete(key))
  }

  /** BOUNDARY: a front that names threads without end must not make the runner grow: the oldest are forgotten. */
  #remember(key: string, fence: number): void {
    this.#fences.delete(key)
    this.#fences.set(key, fence)
    const [oldest] = this.#fences.keys()
    if (this.#fences.size > fencesMax && oldest !== undefined) this.#fences.delete(oldest)
  }

  /** Work on the files of a thread that changes nothing. @throws Refusal thread_unknown, unavailable. */
  async reading<T>(id: FilesystemId, work: (root: number) => Promise<T>): Promise<T> {
    const lease = await this.#warm.acquire(id, undefined)
    try {
      return await work(lease.mounted.root.fd)
    } finally {
      lease.release()
    }
  }

  /** Work that changes files: no run begins before it has ended. @throws Refusal thread_busy while a run has it. */
  async writing<T>(id: FilesystemId, work: (root: number) => Promise<T>): Promise<T> {
    const key = keyOf(id)
    const use = this.#uses.get(key) ?? { runId: undefined, writers: 0 }
    if (use.runId !== undefined) throw busy(id)
    this.#uses.set(key, use)
    use.writers += 1
    try {
      return await this.reading(id, work)
    } finally {
      use.writers -= 1
      if (use.writers === 0) this.#uses.delete(key)
    }
  }
}

const busy = ({ name }: FilesystemId): Refusal => new Refusal('thread_busy', { thread: name })

/** A thread in the hands of one run: claimed, then mounted, then attached to its slot; given back in one step. */
export class ThreadClaim {
  readonly #id: FilesystemId
  readonly #quota: Quota
  readonly #warm: WarmFilesystems
  readonly #changes: Changes
  readonly #free: () => void
  #lease: WarmLease | undefined
  #attached: { slot: Slot; attachment: Attachment } | undefined

  constructor(id: FilesystemId, quota: Quota, warm: WarmFilesystems, changes: Changes, free: () => void) {
    this.#id = id
    this.#quota = quota
    this.#warm = warm
    this.#changes = changes
    this.#free = free
  }

  /** As its org calls it. */
  get id(): string {
    return this.#id.name
  }

  /** Mounts it, made first if need be. @throws Refusal unavailable. */
  async mount(): Promise<void> {
    this.#lease = await this.#warm.acquire(this.#id, this.#quota)
  }

  /** @returns the entry of the slot's dock at which it is now. */
  async attach(slot: Slot): Promise<string> {
    if (!(slot.dock instanceof Dock)) throw new Error(`slot ${slot.id} has no dock`)
    const options = { initPid: slot.pid, name: homeEntry, readOnly: false }
    this.#attached = { slot, attachment: await slot.dock.attach(this.#mounted, options) }
    return homeEntry
  }

  /**
   * How a run ended, seen together with its storage. A program that fails, or dies of a page that could not be written,
   * while its storage is full to the last block or the last file, ended for that. What the kernel told the program only
   * the program knows: one that fails for another reason on full storage is counted the same.
   */
  async endingOf(ending: Ending): Promise<Ending> {
    const failed =
      (ending.kind === 'exited' && ending.code !== 0) || (ending.kind === 'signaled' && ending.signal === 'BUS')
    if (!failed) return ending
    const { totalBytes, freeBytes, freeInodes } = await usageOf(this.#mounted)
    if (freeBytes >= fullBytes(totalBytes) && freeInodes > 0) return ending
    // One that was made for more than this profile gives keeps its size.
    const isLarger = totalBytes > imageBytesFor(this.#quota)
    return { kind: 'disk_quota', limitBytes: isLarger ? totalBytes : this.#quota.bytes }
  }

  /**
   * What a run has left of files that it created or changed; only when every process of it is dead.
   * @param startMs when it started, by the wall clock.
   * @throws system errors of a filesystem that cannot be read.
   */
  changesSince(startMs: number): Promise<ChangedFiles> {
    return this.#changes.since(keyOf(this.#id), this.#id.name, this.#mounted.root.fd, startMs)
  }

  /**
   * Gives the thread back; only when every process of the run is dead. A slot that still holds on to it ends first.
   * @throws what detaching throws; the thread is free then, too, and the slot has ended.
   */
  async release(): Promise<void> {
    try {
      await this.#detach()
    } finally {
      this.#lease?.release()
      this.#lease = undefined
      this.#free()
    }
  }

  async #detach(): Promise<void> {
    const { slot, attachment } = this.#attached ?? {}
    this.#attached = undefined
    let isClean = false
    try {
      isClean = (await attachment?.detach()) ?? true
    } finally {
      // That it could not be ended is the pool's to learn, from its own call.
      if (!isClean) await slot?.destroy().catch(() => undefined)
    }
  }

  get #mounted(): Mounted {
    if (!this.#lease) throw new Error(`${keyOf(this.#id)} is not mounted`)
    return this.#lease.mounted
  }
}
