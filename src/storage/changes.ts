/**
 * What a run has created or changed in its thread, seen when nothing of the run lives any more. The time at which the
 * status of a file changed (ctime) is the kernel's: no program can set it.
 *
 * BOUNDARY: names and contents come from code in a sandbox. The walk is the addon's, bounded in entries, depth, paths and
 * time; what is read of files is bounded here.
 */
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { monotonicMs, wallMs } from '../base/clock.ts'
import { detectionBytes, detectMediaType } from '../base/media-type.ts'
import type { ChangedFile, ChangedFiles } from '../base/run.ts'
import { kernel } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'
import { piecesOf } from './paths.ts'

/** Enough for some 30,000 entries; what a home that holds more adds to each of its runs. */
const walkMs = 25
/** More than anybody reads; the answer of a run stays below some 100 KB. */
const changedMax = 256
const hashedFileMaxBytes = 16 * 1024 * 1024
const hashedMaxBytes = 64 * 1024 * 1024
/** Reading ends then, whatever the disk does. */
const readMs = 250
const chunkBytes = 256 * 1024
/** So many files are read at once. */
const readers = 4

/** The kernel stamps files with a clock of ticks, the longest of which are 10 ms: a change looks so much older at most. */
const tickMs = 11

interface Found {
  path: Buffer
  sizeBytes: number
  /** Which file it is and when it changed, to the nanosecond. */
  stamp: string
}

interface Known {
  stamp: string
  sha256: string | null
}

/** The changes of run after run. What changed in the last tick before a run is known here, and not told of it again. */
export class ChangeDetector {
  /** By thread; those whose tick is over are dropped. */
  readonly #recent = new Map<string, { atMs: number; files: ReadonlyMap<string, Known> }>()
  /** When files were written, by thread; likewise. */
  readonly #written = new Map<string, number>()

  /** Files of a thread were written by somebody else than a run, until now. */
  wrote(key: string): void {
    this.#dropOld(wallMs())
    this.#written.delete(key)
    this.#written.set(key, wallMs())
  }

  /** To be called before a run: what was written a moment ago will not be taken for its work. */
  async settle(key: string, threadId: string, root: number): Promise<void> {
    const isRecent = Math.abs(wallMs() - (this.#written.get(key) ?? 0)) <= tickMs
    if (isRecent) await this.since(key, threadId, root, wallMs())
  }

  /**
   * @param key of the thread.
   * @param root its root directory.
   * @param startMs when the run started, by the wall clock.
   * @throws system errors of a filesystem that cannot be read.
   */
  async since(key: string, threadId: string, root: number, startMs: number): Promise<ChangedFiles> {
    const packed = await kernel.changedFiles(root, (startMs - tickMs) * 1000, walkMs)
    const endMs = wallMs()
    const { found, isCut } = unpack(packed)
    const before = this.#recent.get(key)?.files
    this.#dropOld(endMs)
    if (found.length === 0) return { threadId, changed: [], truncated: isCut }
    const reading = new Reading(root)
    const told = found.slice(0, changedMax)
    const files = await inTurn(told, async (file) => ({ file, seen: await reading.look(file) }))
    const recent = new Map<string, Known>()
    const changed: ChangedFile[] = []
    let untold = found.length - told.length
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

  /** In the order of their times, unless the clock was set back. */
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

/** See changes.c in `kernel/`. */
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

/** Reads files as far as all together may cost. */
class Reading {
  readonly #root: number
  readonly #untilMs = monotonicMs() + readMs
  #leftBytes = hashedMaxBytes

  constructor(root: number) {
    this.#root = root
  }

  /** @returns undefined where it cannot be read. */
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

/** Step by step, since a path of many names is longer than one call takes. */
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

/** The same for each, a few at a time; answers in the order of the items. */
async function inTurn<Item, Answer>(items: readonly Item[], work: (item: Item) => Promise<Answer>): Promise<Answer[]> {
  const answers: Answer[] = []
  for (let at = 0; at < items.length; at += readers)
    answers.push(...(await Promise.all(items.slice(at, at + readers).map(work))))
  return answers
}
