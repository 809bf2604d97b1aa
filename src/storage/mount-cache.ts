import { setTimeout as sleep } from 'node:timers/promises'
import { Refusal } from '../base/errors.ts'
import type { Quota } from '../base/run.ts'
import { kernel } from '../kernel/kernel.ts'
import { busy, type FilesystemId, keyOf } from './filesystem-id.ts'
import { type Filesystems, type Mounted, type Usage, usageOf } from './filesystems.ts'

export interface MountCacheSettings {
  /** Mounted at once, used or idle. */
  mountedMax: number
  /** A filesystem that is unused for so long is unmounted. */
  idleMs: number
}

/** What happens without anyone waiting for it. */
export interface MountCacheEvents {
  /** An idle filesystem could not be unmounted, or something still held on to it. */
  failed(id: FilesystemId, error: unknown): void
  /** A filesystem was found as a crash had left it, and is whole again. */
  recovered(id: FilesystemId): void
}

/** The right to use a mounted filesystem, shared with others. */
export interface MountLease {
  readonly mounted: Mounted
  /** Idempotent. */
  release(): void
}

interface Warm {
  id: FilesystemId
  users: number
  mounting: Promise<Mounted>
  /** Whether `mounting` creates it when it does not exist. */
  isCreated: boolean
  /** Set when `mounting` has resolved. */
  mounted: Mounted | undefined
  /** Unmounted after its last use, since it lost writes or accepts none. */
  hasFailed: boolean
  /** Being stored on the disk; unmounting waits for it. Does not reject. */
  flushing: Promise<void> | undefined
  /** Set while idle. */
  idleTimer: NodeJS.Timeout | undefined
  /** Order of use: the smallest goes first. */
  lastUse: number
}

/** Keeps filesystems mounted between uses, since mounting costs more than most uses. */
export class MountCache {
  readonly #filesystems: Filesystems
  readonly #settings: MountCacheSettings
  readonly #events: MountCacheEvents
  readonly #warm = new Map<string, Warm>()
  /** Being unmounted, or worked on while unmounted, by key: a caller that needs one waits for it. None of these rejects. */
  readonly #leaving = new Map<string, Promise<void>>()
  /** Mounted, being mounted or being unmounted: each has one of the places. */
  #placesTaken = 0
  #uses = 0
  #closed = false

  constructor(filesystems: Filesystems, settings: MountCacheSettings, events: MountCacheEvents) {
    this.#filesystems = filesystems
    this.#settings = settings
    this.#events = events
  }

  get size(): { mounted: number; used: number; leaving: number } {
    const all = [...this.#warm.values()]
    return { mounted: all.length, used: all.filter((warm) => warm.users > 0).length, leaving: this.#leaving.size }
  }

  /**
   * Mounts the filesystem, unless it is mounted; many may hold it at once.
   * @param quota makes it first when it does not exist, and lets a smaller one grow to it before it is mounted;
   * `undefined`: it must exist.
   * @throws Refusal thread_unknown or volume_unknown, thread_busy or volume_busy, unavailable (all places are in use, or the disk is full).
   */
  async acquire(id: FilesystemId, quota: Quota | undefined): Promise<MountLease> {
    const key = keyOf(id)
    for (let leaving = this.#leaving.get(key); leaving; leaving = this.#leaving.get(key)) await leaving
    if (this.#closed) throw new Refusal('unavailable', { reason: 'storage is closing' })
    const warm = this.#warm.get(key) ?? this.#begin(key, id, quota)
    warm.users += 1
    this.#touch(warm)
    clearTimeout(warm.idleTimer)
    warm.idleTimer = undefined
    try {
      return this.#lease(warm, await warm.mounting)
    } catch (error) {
      warm.users -= 1
      if (this.#warm.get(key) === warm) this.#warm.delete(key)
      // It did not exist for a reader who came a moment earlier; this caller creates it.
      if (quota && !warm.isCreated) return this.acquire(id, quota)
      throw error
    }
  }

  #begin(key: string, id: FilesystemId, quota: Quota | undefined): Warm {
    const warm: Warm = {
      id,
      users: 0,
      isCreated: quota !== undefined,
      mounted: undefined,
      hasFailed: false,
      mounting: this.#mount(id, quota),
      flushing: undefined,
      idleTimer: undefined,
      lastUse: 0,
    }
    warm.mounting.then(
      (mounted) => (warm.mounted = mounted),
      () => undefined,
    )
    this.#warm.set(key, warm)
    return warm
  }

  async #mount(id: FilesystemId, quota: Quota | undefined): Promise<Mounted> {
    await this.#takePlace()
    try {
      if (quota && !(await this.#filesystems.create(id, quota))) await this.#filesystems.growTo(id, quota)
      const mounted = await this.#filesystems.mount(id)
      // A state was copied while it was mounted.
      if (mounted.recovered && id.area !== 'states') this.#events.recovered(id)
      return mounted
    } catch (error) {
      this.#placesTaken -= 1
      throw error
    }
  }

  #lease(warm: Warm, mounted: Mounted): MountLease {
    let held = true
    const release = () => {
      if (!held) return
      held = false
      warm.users -= 1
      this.#touch(warm)
      if (warm.users === 0) this.#startIdling(warm)
    }
    return { mounted, release }
  }

  #touch(warm: Warm): void {
    this.#uses += 1
    warm.lastUse = this.#uses
  }

  #startIdling(warm: Warm): void {
    if (this.#warm.get(keyOf(warm.id)) !== warm) return
    if (warm.hasFailed) return void this.#leave(warm)
    warm.idleTimer = setTimeout(() => void this.#leave(warm), this.#settings.idleMs)
    warm.idleTimer.unref()
  }

  /** Takes a place; if all are taken, idle filesystems are unmounted, the least recently used first. */
  async #takePlace(): Promise<void> {
    while (this.#placesTaken >= this.#settings.mountedMax) {
      const [oldest] = this.#idle().sort((a, b) => a.lastUse - b.lastUse)
      if (oldest) await this.#leave(oldest)
      else if (this.#leaving.size > 0) await Promise.race(this.#leaving.values())
      else
        throw new Refusal('unavailable', { reason: `all ${this.#settings.mountedMax} places for storage are in use` })
    }
    this.#placesTaken += 1
  }

  #idle(): Warm[] {
    return [...this.#warm.values()].filter((warm) => warm.idleTimer !== undefined)
  }

  /**
   * Makes the filesystem, or lets a smaller one grow to this quota. @returns whether this call made it.
   * @throws Refusal thread_busy or volume_busy, unavailable.
   */
  create(id: FilesystemId, quota: Quota): Promise<boolean> {
    return this.#alone(id, async () => {
      const made = await this.#filesystems.create(id, quota)
      if (!made) await this.#filesystems.growTo(id, quota)
      return made
    })
  }

  /** Whether there is one that can hold this. */
  async suffices(id: FilesystemId, quota: Quota): Promise<boolean> {
    return this.#filesystems.suffices(id, quota)
  }

  /** Erases one. @returns whether there was one. @throws Refusal thread_busy or volume_busy. */
  remove(id: FilesystemId): Promise<boolean> {
    return this.#alone(id, async () => {
      if (!(await this.#filesystems.exists(id))) return false
      await this.#filesystems.remove(id)
      return true
    })
  }

  /**
   * Copies one. Two copies that have an id in common must not be requested at once.
   * @returns false when `to` exists.
   * @throws Refusal thread_unknown, thread_busy and others.
   */
  fork(from: FilesystemId, to: FilesystemId): Promise<boolean> {
    return this.#alone(from, () => this.#alone(to, () => this.#filesystems.fork(from, to)))
  }

  /** Copies one that is mounted, and to which nothing writes meanwhile. @throws Refusal disk_unavailable. */
  snapshot(mounted: Mounted, to: FilesystemId): Promise<void> {
    return this.#filesystems.snapshot(mounted, to)
  }

  /**
   * What one takes and holds; it is mounted for that.
   * @returns its usage, the bytes that it takes on the disk, and whether it was mounted before.
   * @throws Refusal thread_unknown or volume_unknown, unavailable.
   */
  async inspect(id: FilesystemId): Promise<Usage & { allocatedBytes: number; wasMounted: boolean }> {
    const wasMounted = this.#warm.has(keyOf(id))
    const lease = await this.acquire(id, undefined)
    try {
      const usage = await usageOf(lease.mounted)
      return { ...usage, allocatedBytes: (await this.#filesystems.allocatedBytes(id)) ?? 0, wasMounted }
    } finally {
      lease.release()
    }
  }

  /** Bytes that one takes on the disk; `undefined` if it does not exist. */
  allocatedBytes(id: FilesystemId): Promise<number | undefined> {
    return this.#filesystems.allocatedBytes(id)
  }

  /** Names of the filesystems of an org, unordered. */
  names(area: FilesystemId['area'], org: string): Promise<string[]> {
    return this.#filesystems.names(area, org)
  }

  /** Work on the image of an unused filesystem: it is unmounted first, and other callers wait. */
  async #alone<T>(id: FilesystemId, work: () => Promise<T>): Promise<T> {
    const key = keyOf(id)
    do await this.evict(id)
    while (this.#warm.has(key) || this.#leaving.has(key))
    if (this.#closed) throw new Refusal('unavailable', { reason: 'storage is closing' })
    const working = work()
    const left = working
      .then(
        () => undefined,
        () => undefined,
      )
      .finally(() => this.#leaving.delete(key))
    this.#leaving.set(key, left)
    return working
  }

  /**
   * Stores what was written to a mounted filesystem on the disk. One that is no longer mounted was stored by unmounting it.
   * @throws system errors, also those of earlier writes.
   */
  async flush({ id }: Pick<Mounted, 'id'>): Promise<void> {
    const key = keyOf(id)
    const warm = this.#warm.get(key)
    if (warm?.mounted === undefined) return this.#leaving.get(key)
    const flushing = kernel.syncFilesystem(warm.mounted.root.fd)
    warm.flushing = Promise.all([warm.flushing, flushing]).then(
      () => undefined,
      () => undefined,
    )
    await flushing
  }

  /** What is mounted now. */
  get mounted(): Mounted[] {
    return [...this.#warm.values()].flatMap(({ mounted }) => mounted ?? [])
  }

  /** Lets one that lost writes, or accepts none, be mounted and checked anew: at once, or after its last use. */
  distrust({ id }: Pick<Mounted, 'id'>): void {
    const warm = this.#warm.get(keyOf(id))
    if (!warm) return
    warm.hasFailed = true
    if (warm.idleTimer !== undefined) void this.#leave(warm)
  }

  /** Unmounts one at once. @throws Refusal thread_busy or volume_busy when somebody uses it. */
  async evict(id: FilesystemId): Promise<void> {
    const key = keyOf(id)
    // A reader may be looking for one that does not exist, which is no use of it.
    for (let looked = this.#warm.get(key); looked && !looked.mounted; looked = this.#warm.get(key))
      await looked.mounting.catch(() => undefined)
    const warm = this.#warm.get(key)
    if (warm && warm.idleTimer === undefined) throw busy(id)
    if (warm) await this.#leave(warm)
    await this.#leaving.get(key)
  }

  #leave(warm: Warm): Promise<void> {
    const key = keyOf(warm.id)
    clearTimeout(warm.idleTimer)
    warm.idleTimer = undefined
    this.#warm.delete(key)
    const left = this.#unmount(warm).finally(() => this.#leaving.delete(key))
    this.#leaving.set(key, left)
    return left
  }

  async #unmount(warm: Warm): Promise<void> {
    try {
      await warm.flushing
      if (!(await this.#filesystems.unmount(await warm.mounting))) throw new Error('something still held on to it')
    } catch (error) {
      this.#events.failed(warm.id, error)
    } finally {
      this.#placesTaken -= 1
    }
  }

  /**
   * Unmounts everything. Used ones are waited for.
   * @param patienceMs after which the used ones are left to the kernel, which unmounts them when this process ends.
   */
  async close(patienceMs: number): Promise<void> {
    this.#closed = true
    const deadlineMs = performance.now() + patienceMs
    for (;;) {
      for (const warm of this.#idle()) void this.#leave(warm)
      await Promise.all(this.#leaving.values())
      if (this.#warm.size === 0 || performance.now() >= deadlineMs) return
      await sleep(10)
    }
  }
}
