import { mkdirSync, readdirSync, rmSync, statSync, utimesSync } from 'node:fs'
import { type FileHandle, open, rename, rm, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import type { PackageCacheTotals } from '../../base/package-cache.ts'
import { PackageProblem } from './problem.ts'

/** How often the free space of the disk is looked at while a file is written. */
const lookEveryBytes = 16 * 1024 * 1024
/** A use is written to the file at most this often; the order survives a restart to that extent. */
const touchEveryMs = 60_000
/** One file may take this share of the cache, so that it does not displace all others. */
const shareOfOne = 4
const keyPattern = /^[a-z0-9-]{1,160}$/

interface Entry {
  bytes: number
  touchedMs: number
}

/** A file that is being written. */
export interface Unfinished {
  handle: FileHandle
  /** Takes room for further bytes. @throws PackageProblem 507. */
  grow(bytes: number): Promise<void>
  /** Keeps it under a key. The handle stays open. */
  keep(key: string): Promise<void>
  /** Removes it, unless it was kept, and closes the handle. Never rejects. */
  close(): Promise<void>
}

/**
 * Files by key in one directory, which nothing else uses: those that were not used for the longest time make room. They are not
 * written durably; who reads one compares its checksum.
 */
export class PackageStore {
  readonly #directory: string
  readonly #sizeBytes: number
  readonly #reserveBytes: number
  /** The one that was not used for the longest time first. */
  readonly #entries = new Map<string, Entry>()
  /** Of all files, also unfinished ones. */
  #usedBytes = 0
  #evicted = 0
  #count = 0

  /** Opens it; removes what an earlier process did not finish. @throws Error when the directory cannot be used. */
  constructor(directory: string, sizeBytes: number, reserveBytes: number) {
    this.#directory = directory
    this.#sizeBytes = sizeBytes
    this.#reserveBytes = reserveBytes
    rmSync(this.#unfinished, { recursive: true, force: true })
    for (const part of [this.#unfinished, this.#kept]) mkdirSync(part, { recursive: true, mode: 0o700 })
    const found = readdirSync(this.#kept).map((key) => ({ key, stats: statSync(join(this.#kept, key)) }))
    for (const { key, stats } of found.sort((a, b) => a.stats.mtimeMs - b.stats.mtimeMs)) {
      this.#entries.set(key, { bytes: stats.size, touchedMs: stats.mtimeMs })
      this.#usedBytes += stats.size
    }
    this.#evict(0)
  }

  /** The greatest file that it takes, in bytes. */
  get fileMaxBytes(): number {
    return Math.floor(this.#sizeBytes / shareOfOne)
  }

  /** What it contains, and how many files made room. */
  get figures(): Pick<PackageCacheTotals, 'files' | 'usedBytes' | 'sizeBytes' | 'evicted'> {
    const [usedBytes, sizeBytes] = [this.#usedBytes, this.#sizeBytes]
    return { files: this.#entries.size, usedBytes, sizeBytes, evicted: this.#evicted }
  }

  /** Opens a file. @returns undefined when it has none with this key. The caller closes it, also after it was removed. */
  async read(key: string): Promise<{ handle: FileHandle; bytes: number } | undefined> {
    const entry = this.#entries.get(key)
    if (entry === undefined) return undefined
    try {
      const handle = await open(join(this.#kept, key), 'r')
      this.#use(key)
      return { handle, bytes: (await handle.stat()).size }
    } catch {
      this.remove(key)
      return undefined
    }
  }

  /** Begins a file. */
  async begin(): Promise<Unfinished> {
    const path = join(this.#unfinished, `${++this.#count}`)
    const handle = await open(path, 'wx+', 0o600)
    let bytes = 0
    let toLook = 0
    let isKept = false
    return {
      handle,
      grow: async (more) => {
        this.#evict(more)
        if (this.#usedBytes + more > this.#sizeBytes) throw noRoom()
        bytes += more
        this.#usedBytes += more
        toLook -= more
        if (toLook > 0) return
        toLook = lookEveryBytes
        await this.#requireDisk()
      },
      keep: async (key) => {
        if (!keyPattern.test(key)) throw new Error('no key')
        await rename(path, join(this.#kept, key))
        isKept = true
        this.#usedBytes -= this.#entries.get(key)?.bytes ?? 0
        this.#entries.delete(key)
        this.#entries.set(key, { bytes, touchedMs: Date.now() })
      },
      close: async () => {
        await handle.close().catch(() => undefined)
        if (isKept) return
        this.#usedBytes -= bytes
        await rm(path, { force: true }).catch(() => undefined)
      },
    }
  }

  /** Keeps content under a key, which replaces an earlier one. @throws PackageProblem 507. */
  async write(key: string, content: Buffer): Promise<void> {
    const unfinished = await this.begin()
    try {
      await unfinished.grow(content.length)
      await unfinished.handle.writeFile(content)
      await unfinished.keep(key)
    } finally {
      await unfinished.close()
    }
  }

  remove(key: string): void {
    const entry = this.#entries.get(key)
    if (entry === undefined) return
    this.#entries.delete(key)
    this.#usedBytes -= entry.bytes
    rmSync(join(this.#kept, key), { force: true })
  }

  #use(key: string): void {
    const entry = this.#entries.get(key)
    if (entry === undefined) return
    this.#entries.delete(key)
    this.#entries.set(key, entry)
    const nowMs = Date.now()
    if (nowMs - entry.touchedMs < touchEveryMs) return
    entry.touchedMs = nowMs
    utimesSync(join(this.#kept, key), nowMs / 1000, nowMs / 1000)
  }

  #evict(moreBytes: number): void {
    for (const key of this.#entries.keys()) {
      if (this.#usedBytes + moreBytes <= this.#sizeBytes) return
      this.remove(key)
      this.#evicted += 1
    }
  }

  /** Removes files until the disk has its reserve. @throws PackageProblem 507. */
  async #requireDisk(): Promise<void> {
    for (;;) {
      const { bavail, bsize } = await statfs(this.#directory)
      const missingBytes = this.#reserveBytes + lookEveryBytes - bavail * bsize
      if (missingBytes <= 0) return
      if (this.#entries.size === 0) throw noRoom()
      let freedBytes = 0
      for (const [key, { bytes }] of this.#entries) {
        if (freedBytes >= missingBytes) break
        freedBytes += bytes
        this.remove(key)
        this.#evicted += 1
      }
    }
  }

  get #unfinished(): string {
    return join(this.#directory, 'unfinished')
  }

  get #kept(): string {
    return join(this.#directory, 'kept')
  }
}

const noRoom = (): PackageProblem => new PackageProblem(507, 'the package cache has no room for this file')
