import type { ChangedFiles, Quota, RunThread } from '../../base/run.ts'
import type { Slot } from '../../engine/slots/slot.ts'
import { ChangeDetector } from '../../storage/changes.ts'
import { busy, type FilesystemId, keyOf } from '../../storage/filesystem-id.ts'
import type { Mounted } from '../../storage/filesystems.ts'
import type { MountCache, MountLease } from '../../storage/mount-cache.ts'
import { removeProgramCopies } from '../../storage/temporary-names.ts'
import { detach, dockFor, limitReached, type SlotMount } from '../runs/slot-mounts.ts'
import type { DiskWatch } from './disk-watch.ts'

/** Some ten megabytes. */
const fencesMax = 100_000

/** In the dock of a slot, which has one run at a time. */
const homeEntry = 'home'

interface Use {
  /** A run or sandbox, or what needs the image itself, has a thread for itself; files are changed by several at once. */
  by: 'run' | 'upkeep' | 'files'
  writers: number
}

/**
 * The threads of this runner: who may use one when. A run or sandbox has its thread for itself until its jail is dead; files
 * may be read meanwhile, and written by several at once while neither has it.
 */
export class ThreadClaims {
  readonly #mounts: MountCache
  readonly #watch: DiskWatch
  readonly #uses = new Map<string, Use>()
  readonly #changes = new ChangeDetector()
  /** Being made or grown. None of these rejects. */
  readonly #creating = new Map<string, Promise<void>>()
  /** Highest fencing number seen. Kept for this life of the runner: no jail outlives it. */
  readonly #fences = new Map<string, number>()

  constructor(mounts: MountCache, watch: DiskWatch) {
    this.#mounts = mounts
    this.#watch = watch
  }

  /**
   * Gives a thread to a run or sandbox, at once or not at all.
   * @throws Refusal thread_busy when another has it, or this one's number is stale.
   */
  claim({ orgId }: { orgId: string }, thread: RunThread): ThreadClaim {
    const id: FilesystemId = { area: 'threads', org: orgId, name: thread.id }
    const key = keyOf(id)
    if (this.#uses.has(key) || thread.fence < (this.#fences.get(key) ?? 0)) throw busy(id)
    this.#remember(key, thread.fence)
    this.#uses.set(key, { by: 'run', writers: 0 })
    const storage = { mounts: this.#mounts, watch: this.#watch, changes: this.#changes }
    return new ThreadClaim(id, thread.quota, storage, () => this.#uses.delete(key))
  }

  /** BOUNDARY: limited, because a front could name any number of threads; the oldest entries are removed. */
  #remember(key: string, fence: number): void {
    this.#fences.delete(key)
    this.#fences.set(key, fence)
    const [oldest] = this.#fences.keys()
    if (this.#fences.size > fencesMax && oldest !== undefined) this.#fences.delete(oldest)
  }

  /** Work on the files of a thread that changes nothing. @throws Refusal thread_unknown, unavailable. */
  async reading<T>(id: FilesystemId, work: (root: number) => Promise<T>): Promise<T> {
    const lease = await this.#mounts.acquire(id, undefined)
    try {
      return await work(lease.mounted.root.fd)
    } finally {
      lease.release()
    }
  }

  /** Work that changes files: no run begins before it has ended. @throws Refusal thread_busy while a run has it. */
  async writing<T>(id: FilesystemId, work: (root: number) => Promise<T>): Promise<T> {
    const key = keyOf(id)
    const use = this.#uses.get(key) ?? { by: 'files', writers: 0 }
    if (use.by !== 'files') throw busy(id)
    this.#uses.set(key, use)
    use.writers += 1
    try {
      return await this.reading(id, work)
    } finally {
      this.#changes.wrote(key)
      use.writers -= 1
      if (use.writers === 0) this.#uses.delete(key)
    }
  }

  /**
   * Makes a thread, or lets a smaller one grow; one that is as it should be is left alone, in use or not. Of many calls
   * at once one does it, and the others wait for it.
   * @returns whether this call made it.
   * @throws Refusal thread_busy.
   */
  async create(id: FilesystemId, quota: Quota): Promise<boolean> {
    const key = keyOf(id)
    // What was seen before another call made it says nothing about it afterwards, so each looks when the other is done.
    for (let other = this.#creating.get(key); other; other = this.#creating.get(key)) await other
    const work = this.#createIfNeeded(id, quota)
    const settled = work
      .then(
        () => undefined,
        () => undefined,
      )
      .finally(() => this.#creating.delete(key))
    this.#creating.set(key, settled)
    return work
  }

  async #createIfNeeded(id: FilesystemId, quota: Quota): Promise<boolean> {
    if (await this.#mounts.suffices(id, quota)) return false
    return this.#alone([id], () => this.#mounts.create(id, quota))
  }

  /** Erases a thread, with the numbers of its holders. @returns whether there was one. @throws Refusal thread_busy. */
  remove(id: FilesystemId): Promise<boolean> {
    return this.#alone([id], async () => {
      const removed = await this.#mounts.remove(id)
      this.#fences.delete(keyOf(id))
      return removed
    })
  }

  /** Copies a thread. @returns false when `to` exists. @throws Refusal thread_unknown, thread_busy. */
  fork(from: FilesystemId, to: FilesystemId): Promise<boolean> {
    return this.#alone([from, to], () => this.#mounts.fork(from, to))
  }

  /** No run and no change of files begins meanwhile. */
  async #alone<T>(ids: readonly FilesystemId[], work: () => Promise<T>): Promise<T> {
    const taken = ids.find((id) => this.#uses.has(keyOf(id)))
    if (taken) throw busy(taken)
    for (const id of ids) this.#uses.set(keyOf(id), { by: 'upkeep', writers: 0 })
    try {
      return await work()
    } finally {
      for (const id of ids) this.#uses.delete(keyOf(id))
    }
  }
}

/** A thread in the hands of one run or sandbox: claimed, then mounted, then attached to its slot; given back in one step. */
export class ThreadClaim {
  readonly #id: FilesystemId
  readonly #quota: Quota
  readonly #mounts: MountCache
  readonly #watch: DiskWatch
  readonly #changes: ChangeDetector
  readonly #free: () => void
  #lease: MountLease | undefined
  #attached: SlotMount | undefined

  constructor(
    id: FilesystemId,
    quota: Quota,
    { mounts, watch, changes }: { mounts: MountCache; watch: DiskWatch; changes: ChangeDetector },
    free: () => void,
  ) {
    this.#id = id
    this.#quota = quota
    this.#mounts = mounts
    this.#watch = watch
    this.#changes = changes
    this.#free = free
  }

  /** Mounts it, made first if need be. @throws Refusal unavailable, disk_unavailable. */
  async mount(): Promise<void> {
    await this.#watch.requireFor(this.#id.org)
    this.#lease = await this.#mounts.acquire(this.#id, this.#quota)
    // A filesystem that cannot be read is reported after the run.
    await this.#changes.settle(keyOf(this.#id), this.#id.name, this.#mounted.root.fd).catch(() => undefined)
  }

  /** @returns the entry of the slot's dock at which it is now. */
  async attach(slot: Slot): Promise<string> {
    const options = { initPid: slot.pid, name: homeEntry, readOnly: false }
    const dock = await dockFor(slot, [this.#mounted])
    this.#attached = { slot, mount: await dock.attach(this.#mounted, options) }
    return homeEntry
  }

  /** What is mounted and can be written to. */
  get writable(): { mounted: Mounted; limitBytes: number }[] {
    return [{ mounted: this.#mounted, limitBytes: this.#quota.bytes }]
  }

  /** @returns the limit that it has come to; `undefined` while there is room. */
  limitReached(): Promise<number | undefined> {
    return limitReached(this.#mounted, this.#quota)
  }

  /**
   * What a run has left of files that it created or changed; only when every process of it is dead.
   * @param startMs when it started, by the wall clock.
   * @throws system errors of a filesystem that cannot be read.
   */
  changesSince(startMs: number): Promise<ChangedFiles> {
    return this.#changes.since(keyOf(this.#id), this.#id.name, this.#mounted.root.fd, startMs)
  }

  /** Removes the copy of the program that ran in it; only when every process of the run is dead. @throws system errors. */
  removeProgramCopies(): Promise<void> {
    return removeProgramCopies(this.#mounted.root.fd)
  }

  /** Records that files were written until now without a run, which a later run must not report. */
  wrote(): void {
    this.#changes.wrote(keyOf(this.#id))
  }

  /** Gives the thread back. @throws what detaching throws; the thread is free then, too. */
  async release(): Promise<void> {
    const attached = this.#attached
    this.#attached = undefined
    try {
      if (attached) await detach(attached)
    } finally {
      this.#lease?.release()
      this.#lease = undefined
      this.#free()
    }
  }

  get #mounted(): Mounted {
    if (!this.#lease) throw new Error(`${keyOf(this.#id)} is not mounted`)
    return this.#lease.mounted
  }
}
