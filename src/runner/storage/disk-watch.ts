import { BackgroundJob } from '../../base/background-job.ts'
import { kernel } from '../../kernel/kernel.ts'
import type { Log } from '../../observe/log.ts'
import type { DiskLevel, DiskRoom } from '../../storage/disk-room.ts'
import { failedMounts } from '../../storage/failed-mounts.ts'
import { type FilesystemId, keyOf } from '../../storage/filesystem-id.ts'
import { type Mounted, usageOf } from '../../storage/filesystems.ts'
import type { MountCache } from '../../storage/mount-cache.ts'

/** A run or an upload that can write to a filesystem. */
export interface Writer {
  id: FilesystemId
  /** Ends it: the disk has no room for what it writes. */
  stop(): void
}

interface Watched extends Writer {
  /** Bytes in use when the disk became short, or shortly before; later ones are what it wrote. */
  usedBefore: number | undefined
}

/** More than any disk writes; the closer the reserve, the sooner the next look. */
const bytesPerMs = 8 * 1024 * 1024
/** Written by a program, and not yet part of what the disk has in use. */
const unseenBytes = 64 * 1024 * 1024
/** A look is one statfs(2) while there is room, 5 µs. */
const lookMs = { least: 4, most: 250 }
/** So much of the reserve, as a share, can each writer use that is not ended at once. */
const writerShare = 1 / 64
/** While the reserve is exhausted, the same in bytes: metadata of a program that only reads. */
const idleWriterBytes = 64 * 1024
/** How often filesystems that accept no writes are looked for. */
const failedEveryMs = 1_000
/** How often a free loop device is looked for, while there is one, and while all are in use. */
const loopEveryMs = { free: 10_000, missing: 1_000 }

/**
 * Watches the disk of the storage. Quotas can add up to more than the disk holds, so the writers are ended before they
 * use up the reserve, which is left to the database and to other organizations. What was written to a thread reaches the
 * disk seconds later; it is counted as if it were there.
 */
export class DiskWatch {
  readonly room: DiskRoom
  readonly #mounts: MountCache
  readonly #mountsDir: string
  readonly #log: Log
  readonly #writers = new Set<Watched>()
  readonly #job: BackgroundJob
  #lastLevel: DiskLevel = 'ample'
  /** Called when `problem` may have changed. */
  onChange: () => void = () => undefined
  #failedLookedMs = 0
  /** Why no filesystem can be mounted. */
  #loopProblem: string | undefined
  #loopLookedMs = 0

  constructor(room: DiskRoom, mounts: MountCache, mountsDir: string, log: Log) {
    this.room = room
    this.#mounts = mounts
    this.#mountsDir = mountsDir
    this.#log = log
    this.#job = new BackgroundJob({
      everyMs: () => this.#nextLookMs(),
      // The disk is not left unwatched for longer because it could not be read.
      retryMs: 0,
      work: () => this.#look(),
      onFault: (error) => log.error({ err: error }, 'the free disk space could not be read'),
    })
  }

  start(): void {
    this.#job.start()
  }

  stop(): Promise<void> {
    return this.#job.stop()
  }

  /** Why no organization can store anything; `undefined` while some can. */
  get problem(): string | undefined {
    return this.#lastLevel === 'exhausted' ? 'the disk of threads is nearly full' : this.#loopProblem
  }

  /** Whether what was written may not reach the disk. */
  get isShort(): boolean {
    return this.room.level !== 'ample'
  }

  /** @throws Refusal `disk_unavailable` when this organization cannot write now. Costs nothing while there is room. */
  async requireFor(org: string): Promise<void> {
    if (this.room.level === 'reserved' || this.room.level === 'exhausted') await this.room.requireFor(org)
  }

  /** Adds a writer. @returns a function that removes it. */
  add(writer: Writer): () => void {
    const watched: Watched = { ...writer, usedBefore: undefined }
    this.#writers.add(watched)
    // The look that was planned while nothing was written can be too late, where the reserve is near.
    if (this.#writers.size === 1 && this.#nextLookMs() < lookMs.most) void this.#job.run()
    return () => void this.#writers.delete(watched)
  }

  #nextLookMs(): number {
    const untilReserveMs = (this.room.freeBytes - this.room.reserveBytes - unseenBytes) / bytesPerMs
    return Math.max(lookMs.least, Math.min(lookMs.most, this.#writers.size > 0 ? untilReserveMs : lookMs.most))
  }

  async #look(): Promise<void> {
    const level = await this.room.look()
    if (level !== 'ample') await this.#lookClosely()
    else if (this.#nextLookMs() < lookMs.most) await this.#noteUsed()
    this.#report(this.room.level)
    const nowMs = performance.now()
    const loopMs = this.#loopProblem === undefined ? loopEveryMs.free : loopEveryMs.missing
    if (nowMs - this.#loopLookedMs >= loopMs) {
      this.#loopLookedMs = nowMs
      await this.#lookForLoopDevice()
    }
    if (nowMs - this.#failedLookedMs < failedEveryMs) return
    this.#failedLookedMs = nowMs
    const failed = await failedMounts(this.#mountsDir)
    for (const mounted of this.#mounts.mounted) if (failed.has(mounted.path)) this.#distrust(mounted)
  }

  async #lookForLoopDevice(): Promise<void> {
    const before = this.#loopProblem
    try {
      await kernel.findLoopDevice()
      this.#loopProblem = undefined
    } catch (error) {
      this.#loopProblem = `no loop device is free for the filesystem of a thread (${(error as Error).message})`
    }
    if (before === this.#loopProblem) return
    if (this.#loopProblem === undefined) this.#log.info('a loop device is free again')
    else this.#log.error(this.#loopProblem)
    this.onChange()
  }

  /** While there is room, but not for long: what is written from now on counts when the disk becomes short. */
  async #noteUsed(): Promise<void> {
    const written = new Set([...this.#writers].map(({ id }) => keyOf(id)))
    const mounted = [...this.#mounts.mounted].filter(({ id }) => written.has(keyOf(id)))
    const used = new Map(await Promise.all(mounted.map(async (one) => [keyOf(one.id), await usedOf(one)] as const)))
    for (const writer of this.#writers) writer.usedBefore = used.get(keyOf(writer.id)) ?? writer.usedBefore
  }

  async #lookClosely(): Promise<void> {
    const used = new Map<string, number>()
    const pending = [...this.#mounts.mounted].map(async (mounted) => {
      const [usedBytes, allocatedBytes] = await Promise.all([usedOf(mounted), this.#mounts.allocatedBytes(mounted.id)])
      used.set(keyOf(mounted.id), usedBytes)
      return Math.max(0, usedBytes - (allocatedBytes ?? 0))
    })
    const pendingBytes = (await Promise.all(pending)).reduce((sum, bytes) => sum + bytes, 0)
    const level = await this.room.look(pendingBytes)
    for (const writer of this.#writers) {
      const usedNow = used.get(keyOf(writer.id))
      writer.usedBefore ??= usedNow
      if (level === 'ample' || level === 'short') continue
      const isWithin = level === 'reserved' && (await this.room.mayWrite(writer.id.org))
      const allowedBytes = level === 'reserved' ? this.room.reserveBytes * writerShare : idleWriterBytes
      if (isWithin || (usedNow ?? 0) - (writer.usedBefore ?? 0) <= allowedBytes) continue
      this.#log.warn({ storage: keyOf(writer.id), level }, 'a writer was ended: the disk is nearly full')
      writer.stop()
      this.#writers.delete(writer)
    }
  }

  #report(level: DiskLevel): void {
    if (level === this.#lastLevel) return
    const figures = { level, free_bytes: this.room.freeBytes, reserve_bytes: this.room.reserveBytes }
    if (level === 'reserved' || level === 'exhausted')
      this.#log.error(figures, 'the disk of the storage is nearly full')
    else if (level === 'ample' || this.#lastLevel !== 'ample')
      this.#log.info(figures, 'the disk of the storage has room')
    this.#lastLevel = level
    this.onChange()
  }

  #distrust(mounted: Mounted): void {
    this.#log.error({ storage: keyOf(mounted.id) }, 'a filesystem accepts no writes; it is mounted anew')
    this.#mounts.distrust(mounted)
  }
}

/** One that was just unmounted uses nothing. */
async function usedOf(mounted: Mounted): Promise<number> {
  try {
    return (await usageOf(mounted)).usedBytes
  } catch {
    return 0
  }
}
