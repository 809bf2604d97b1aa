import { readdir, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { Refusal } from '../base/errors.ts'
import { codeOf } from '../kernel/kernel.ts'

/** How much room the disk that holds threads and volumes has. */
export type DiskLevel =
  | 'ample'
  /** At the end of a run, the kernel is asked whether it could store what the run wrote. */
  | 'short'
  /** The reserve is in use. An organization can write only while it uses less than an equal share of the storage. */
  | 'reserved'
  /** Half of the reserve is in use. Threads and volumes can only be read and deleted. */
  | 'exhausted'

/** What statfs(2) reports of a disk. */
export interface DiskFigures {
  freeBytes: number
  freeInodes: number
  /** 0 for a filesystem that does not count inodes. */
  inodes: number
}

/** So many inodes are left to the database and to the files of the server; its own need is a few dozen. */
const inodeReserve = 64
/** With a smaller reserve, or with none, a disk is short below this. */
const shortBytes = 64 * 1024 * 1024

/** @param pendingBytes written to threads, but not yet allocated on the disk. */
export function levelOf({ freeBytes, freeInodes, inodes }: DiskFigures, pendingBytes: number, reserveBytes: number) {
  const left = freeBytes - pendingBytes
  if (left < reserveBytes / 2 || (inodes > 0 && freeInodes < inodeReserve)) return 'exhausted' satisfies DiskLevel
  if (left < reserveBytes) return 'reserved' satisfies DiskLevel
  return left < Math.max(2 * reserveBytes, shortBytes) ? ('short' satisfies DiskLevel) : ('ample' satisfies DiskLevel)
}

/** The shares of organizations are determined again after this time, in milliseconds, while the reserve is in use. */
const sharesKeptMs = 5_000

/** The room on the disk of the storage, and who may still use it. */
export class DiskRoom {
  readonly reserveBytes: number
  readonly #home: string
  #level: DiskLevel = 'ample'
  #freeBytes = 0
  #pendingBytes = 0
  #shares: { atMs: number; used: Promise<ReadonlyMap<string, number>> } | undefined

  constructor(home: string, reserveBytes: number) {
    this.#home = home
    this.reserveBytes = reserveBytes
  }

  /** As of the last look. */
  get level(): DiskLevel {
    return this.#level
  }

  /** Free bytes as of the last look. */
  get freeBytes(): number {
    return this.#freeBytes
  }

  /** Reads the free space. @param pendingBytes see `levelOf`; without it the last value is used. */
  async look(pendingBytes = this.#pendingBytes): Promise<DiskLevel> {
    const { bavail, bsize, ffree, files } = await statfs(this.#home)
    this.#freeBytes = bavail * bsize
    this.#pendingBytes = pendingBytes
    const figures = { freeBytes: this.#freeBytes, freeInodes: ffree, inodes: files }
    this.#level = levelOf(figures, pendingBytes, this.reserveBytes)
    if (this.#level === 'ample' || this.#level === 'short') this.#shares = undefined
    return this.#level
  }

  /** @throws Refusal `disk_unavailable` when this organization cannot store more now. */
  async requireFor(org: string): Promise<void> {
    await this.look()
    if (!(await this.mayWrite(org))) throw new Refusal('disk_unavailable', { problem: 'its disk is nearly full' })
  }

  /** Whether an organization can store more, as of the last look. */
  async mayWrite(org: string): Promise<boolean> {
    switch (this.#level) {
      case 'ample':
      case 'short':
        return true
      case 'reserved':
        return this.#isBelowShare(org)
      case 'exhausted':
        return false
    }
  }

  async #isBelowShare(org: string): Promise<boolean> {
    const nowMs = performance.now()
    if (!this.#shares || nowMs - this.#shares.atMs > sharesKeptMs) {
      this.#shares = { atMs: nowMs, used: usedByOrgs(this.#home) }
      this.#shares.used.catch(() => (this.#shares = undefined))
    }
    const used = await this.#shares.used
    const own = used.get(org) ?? 0
    const total = [...used.values()].reduce((sum, bytes) => sum + bytes, 0)
    return own < total / (used.size + (used.has(org) ? 0 : 1))
  }
}

/** Bytes that the threads and volumes of each organization occupy on the disk. */
async function usedByOrgs(home: string): Promise<Map<string, number>> {
  const used = new Map<string, number>()
  for (const area of ['threads', 'volumes', 'sandboxes', 'states']) {
    for (const org of await namesIn(join(home, area))) {
      const directory = join(home, area, org)
      for (const file of await namesIn(directory)) {
        const { blocks } = await stat(join(directory, file)).catch(() => ({ blocks: 0 }))
        used.set(org, (used.get(org) ?? 0) + blocks * 512)
      }
    }
  }
  return used
}

async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory)
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return []
    throw error
  }
}
