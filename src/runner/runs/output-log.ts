import { HeadAndTail } from '../../base/head-and-tail.ts'
import type { ImageType, RunEvent, RunResult, ShownImage, Stream } from '../../base/run.ts'

/** Maximum size of an output event, in bytes. */
const maxEventBytes = 64 * 1024

/**
 * Maximum number of retained segments of both streams. Only a program that switches streams after almost every byte reaches
 * it; further output then counts as beyond the soft limit. Limits the index of one run to about 6 MB.
 */
const maxSegments = 65_536
/** Approximate memory of a segment, in bytes: an object with six fields and a list entry. */
const segmentBytes = 96

type Entry =
  | { kind: 'running'; end: number }
  | { kind: 'output'; end: number; stream: Stream; source: 'head' | 'tail'; offset: number; bytes: number }
  | { kind: 'gap'; end: number; stream: Stream; bytes: number }
  | ({ kind: 'image'; end: number } & ShownImage)
  | { kind: 'ended'; end: number; result: RunResult }

/**
 * The bounded output of a run: the head of each stream and, beyond it, the tail. Readers follow the head live. The tail,
 * with the size of the gap before it, follows when the run has ended. A slow reader needs no memory: it has a position, not
 * a buffer.
 */
export class OutputLog {
  readonly #kept: Record<Stream, HeadAndTail>
  readonly #entries: Entry[] = []
  readonly #listeners = new Set<() => void>()
  #end = 0
  #imagesBytes = 0
  #ended = false

  /** @param softBytes limit of the kept output per stream, head and tail together. */
  constructor(softBytes: number) {
    this.#kept = { stdout: keepWithin(softBytes), stderr: keepWithin(softBytes) }
  }

  get ended(): boolean {
    return this.#ended
  }

  /** Memory of the output and its order, in bytes. */
  get retainedBytes(): number {
    const { stdout, stderr } = this.#kept
    return stdout.retainedBytes + stderr.retainedBytes + this.#imagesBytes + this.#entries.length * segmentBytes
  }

  /** Calls a function after each change. @returns a function that stops this. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  running(): void {
    this.#push({ kind: 'running', end: this.#end + 1 })
  }

  /** Adds output. Copies the part of `bytes` that is kept. */
  append(stream: Stream, bytes: Uint8Array): void {
    const kept = this.#kept[stream]
    const offset = kept.head.length
    if (this.#entries.length >= maxSegments) {
      kept.appendToTail(bytes)
      return
    }
    const headBytes = kept.append(bytes)
    if (headBytes === 0) return
    const last = this.#entries.at(-1)
    if (last?.kind === 'output' && last.stream === stream) {
      last.bytes += headBytes
      last.end += headBytes
      this.#end = last.end
      this.#announce()
    } else {
      this.#push({ kind: 'output', end: this.#end + headBytes, stream, source: 'head', offset, bytes: headBytes })
    }
  }

  /** Adds an image. Keeps a reference to `bytes`; the caller enforces the limits of images. */
  image(mimeType: ImageType, bytes: Uint8Array): void {
    this.#imagesBytes += bytes.length
    this.#push({ kind: 'image', end: this.#end + 1, mimeType, bytes })
  }

  /** Adds the ending. Nothing can be added afterwards. */
  finish(result: RunResult): void {
    for (const stream of ['stdout', 'stderr'] as const) {
      const { omittedBytes, tail } = this.#kept[stream]
      if (omittedBytes > 0) this.#entries.push({ kind: 'gap', end: ++this.#end, stream, bytes: omittedBytes })
      if (tail.length > 0) {
        this.#end += tail.length
        this.#entries.push({ kind: 'output', end: this.#end, stream, source: 'tail', offset: 0, bytes: tail.length })
      }
    }
    this.#ended = true
    this.#push({ kind: 'ended', end: this.#end + 1, result })
    this.#listeners.clear()
  }

  /**
   * Returns where a reader begins that asks for what follows `seq`: at the newest event for a number beyond it, and before
   * the ending, so that every reader of a run that has ended gets its ending.
   */
  startAfter(seq: number): number {
    return Math.min(seq, this.#ended ? this.#end - 1 : this.#end)
  }

  /** Returns the event after `seq`; `undefined` if it does not exist yet. */
  after(seq: number): RunEvent | undefined {
    const entry = this.#entries[this.#indexAfter(seq)]
    if (entry === undefined) return undefined
    switch (entry.kind) {
      case 'running':
        return { kind: 'running', seq: entry.end }
      case 'gap':
        return { kind: 'gap', seq: entry.end, stream: entry.stream, bytes: entry.bytes }
      case 'image':
        return { kind: 'image', seq: entry.end, mimeType: entry.mimeType, bytes: entry.bytes }
      case 'ended':
        return { kind: 'ended', seq: entry.end, result: entry.result }
      case 'output': {
        const from = Math.max(seq - (entry.end - entry.bytes), 0)
        const bytes = Math.min(entry.bytes - from, maxEventBytes)
        const start = entry.offset + from
        return {
          kind: 'output',
          seq: entry.end - entry.bytes + from + bytes,
          stream: entry.stream,
          bytes: this.#kept[entry.stream][entry.source].subarray(start, start + bytes),
        }
      }
    }
  }

  /** Returns the first entry that ends after `seq`, by binary search. */
  #indexAfter(seq: number): number {
    let low = 0
    let high = this.#entries.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.#entries[middle]!.end > seq) high = middle
      else low = middle + 1
    }
    return low
  }

  #push(entry: Entry): void {
    this.#entries.push(entry)
    this.#end = entry.end
    this.#announce()
  }

  #announce(): void {
    for (const listener of [...this.#listeners]) listener()
  }
}

/** Returns the size of the head, three quarters of the soft limit; the rest is for the tail. */
function keepWithin(softBytes: number): HeadAndTail {
  const tailLimit = Math.floor(softBytes / 4)
  return new HeadAndTail(softBytes - tailLimit, tailLimit)
}
