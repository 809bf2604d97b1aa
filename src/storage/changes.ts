/**
 * Detects the files that a run created or changed in its thread, after the last process of the run has exited. It compares
 * the status change times (ctime), which the kernel sets and no program can.
 *
 * BOUNDARY: names and contents come from code in a sandbox. The addon walks the tree, with limits on entries, depth, paths
 * and time; this file limits what is read of files.
 */
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { monotonicMs, wallMs } from '../base/clock.ts'
import { detectionBytes, detectMediaType } from '../base/media-type.ts'
import type { ChangedFile, ChangedFiles } from '../base/run.ts'
import { kernel } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'
import { piecesOf } from './paths.ts'

/** Time limit of a walk, in milliseconds. Enough for about 30,000 entries. A larger home adds this time to each run. */
const walkMs = 25
/** Maximum number of reported files, so that a result stays below about 100 KB. */
const changedMax = 256
const hashedFileMaxBytes = 16 * 1024 * 1024
const hashedMaxBytes = 64 * 1024 * 1024
/** Time limit for reading files, in milliseconds, in case the disk is slow. */
const readMs = 250
const chunkBytes = 256 * 1024
/** Number of files that are read concurrently. */
const readers = 4

/** Maximum age error of a ctime, in milliseconds: the kernel uses a clock with ticks of up to 10 ms. */
const tickMs = 11

interface Found {
  path: Buffer
  sizeBytes: number
  /** Identifies the file and the time of its change in nanoseconds. */
  stamp: string
}

interface Known {
  stamp: string
  sha256: string | null
}

/** Detects the changes of consecutive runs. Remembers changes in the last tick before a run, which it must not report. */
export class ChangeDetector {
  /** Recent changes by thread. Entries whose tick has passed are deleted. */
  readonly #recent = new Map<string, { atMs: number; files: ReadonlyMap<string, Known> }>()
  /** Times of file writes without a run, by thread, deleted in the same way. */
  readonly #written = new Map<string, number>()

  /** Records that files of a thread were written without a run until now. */
  wrote(key: string): void {
    this.#dropOld(wallMs())
    this.#written.delete(key)
    this.#written.set(key, wallMs())
  }

  /** Must be called before a run, so that earlier changes are not attributed to it. */
  async settle(key: string, threadId: string, root: number): Promise<void> {
    const isRecent = Math.abs(wallMs() - (this.#written.get(key) ?? 0)) <= tickMs
    if (isRecent) await this.since(key, threadId, root, wallMs())
  }

  /**
   * @param key of the thread.
   * @param root its root directory.
   * @param startMs when the run started, by the wall clock.
   * @throws Error of the system call if the filesystem cannot be read.
   */
  async since(key: string, threadId: string, root: number, startMs: number): Promise<ChangedFiles> {
    const packed = await kernel.changedFiles(root, (startMs - tickMs) * 1000, walkMs)
    const endMs = wallMs()
    const { found, isCut } = unpack(packed)
    const before = this.#recent.get(key)?.files
    this.#dropOld(endMs)
    if (found.length === 0) return { threadId, changed: [], truncated: isCut }
    const reading = new Reading(root)
    const reported = found.slice(0, changedMax)
    const files = await inTurn(reported, async (file) => ({ file, seen: await reading.look(file) }))
    const recent = new Map<string, Known>()
    const changed: ChangedFile[] = []
    let untold = found.length - reported.length
    for (const { file, seen } of files) {
      const name = file.path.toString('latin1')
      const known = before?.get(name)
      recent.set(name, { stamp: file.stamp, sha256: seen?.sha256 ?? null })
      if (known?.stamp === file.stamp && known.sha256 === (seen?.sha256 ?? null)) continue
      const path = textOf(file.path)
      if (path === undefined || seen === undefined) untold += 1
      else changed.push({ path, sizeBytes: file.sizeBytes, ...seen })
    }
    this.#recent.delete(key)
    this.#recent.set(key, { atMs: endMs, files: recent })
    changed.sort((one, other) => (one.path < other.path ? -1 : 1))
    return { threadId, changed, truncated: isCut || untold > 0 }
  }

  /** Sorted by time, unless the clock was set back. */
  #dropOld(atMs: number): void {
    for (const [key, writtenMs] of this.#written) {
      if (Math.abs(atMs - writtenMs) <= tickMs) break
      this.#written.delete(key)
    }
    for (const [key, recent] of this.#recent) {
      if (Math.abs(atMs - recent.atMs) <= tickMs) return
      this.#recent.delete(key)
    }
  }
}

/** Parses the records of `changes.c` in `src/kernel/addon/`. */
function unpack(packed: Buffer): { found: Found[]; isCut: boolean } {
  const found: Found[] = []
  for (let at = 1; at < packed.length; ) {
    const pathBytes = packed.readUInt16LE(at)
    const sizeBytes = Number(packed.readBigUInt64LE(at + 2))
    const stamp = packed.toString('latin1', at + 10, at + 26)
    at += 26 + pathBytes
    found.push({ path: packed.subarray(at - pathBytes, at), sizeBytes, stamp })
  }
  return { found, isCut: packed[0] !== 0 }
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function textOf(path: Buffer): string | undefined {
  try {
    return decoder.decode(path)
  } catch {
    return undefined
  }
}

/** Reads files within limits on their total size and time. */
class Reading {
  readonly #root: number
  readonly #untilMs = monotonicMs() + readMs
  #leftBytes = hashedMaxBytes

  constructor(root: number) {
    this.#root = root
  }

  /** Returns the content; `undefined` if the file cannot be read. */
  async look({ path, sizeBytes }: Found): Promise<Omit<ChangedFile, 'path' | 'sizeBytes'> | undefined> {
    const isHashed = sizeBytes <= hashedFileMaxBytes && sizeBytes <= this.#leftBytes && monotonicMs() < this.#untilMs
    if (isHashed) this.#leftBytes -= sizeBytes
    try {
      await using file = await openFile(this.#root, path)
      const first = Buffer.allocUnsafe(Math.min(sizeBytes, isHashed ? chunkBytes : detectionBytes))
      const head = first.subarray(0, await file.read(first, 0))
      const looked = head.subarray(0, detectionBytes)
      const sha256 = isHashed ? await this.#hash(file, head, sizeBytes) : null
      return { sha256, ...detectMediaType(looked, looked.length === sizeBytes) }
    } catch {
      return undefined
    }
  }

  async #hash(file: Descriptor, head: Buffer, sizeBytes: number): Promise<string | null> {
    const hash = createHash('sha256').update(head)
    let at = head.length
    while (at < sizeBytes) {
      if (monotonicMs() > this.#untilMs) return null
      const chunk = Buffer.allocUnsafe(Math.min(chunkBytes, sizeBytes - at))
      const got = await file.read(chunk, at)
      if (got === 0) return null
      hash.update(chunk.subarray(0, got))
      at += got
    }
    return hash.digest('hex')
  }
}

/** Opens a path in steps, since it can be longer than PATH_MAX. */
async function openFile(root: number, path: Buffer): Promise<Descriptor> {
  const names: Buffer[] = []
  for (let from = 0; from <= path.length; ) {
    const slash = path.indexOf(0x2f, from)
    const end = slash < 0 ? path.length : slash
    names.push(path.subarray(from, end))
    from = end + 1
  }
  const pieces = piecesOf(names)
  const last = pieces.pop()!
  let at: Descriptor | undefined
  try {
    for (const piece of pieces) {
      const next = new Descriptor(await kernel.openBeneath(at?.fd ?? root, piece, constants.O_DIRECTORY, 0))
      await at?.close()
      at = next
    }
    return new Descriptor(await kernel.openBeneath(at?.fd ?? root, last, constants.O_RDONLY, 0))
  } finally {
    await at?.close()
  }
}

/** Processes items with limited concurrency. @returns the results in the order of the items. */
async function inTurn<Item, Answer>(items: readonly Item[], work: (item: Item) => Promise<Answer>): Promise<Answer[]> {
  const answers: Answer[] = []
  for (let at = 0; at < items.length; at += readers)
    answers.push(...(await Promise.all(items.slice(at, at + readers).map(work))))
  return answers
}
