import { HeadAndTail } from '../../base/head-and-tail.ts'
import type { ImageType, RunEvent, RunResult, ShownImage, Stream } from '../../base/run.ts'

/** Largest output event; a reader is never handed more at once. */
const maxEventBytes = 64 * 1024

/**
 * Retained segments of both streams together. Only a program that switches streams with nearly every byte comes
 * near it; its output then counts as past the soft limit. Keeps the index of one run below about 6 MB.
 */
const maxSegments = 65_536
/** What one of them takes, roughly: an object of six fields, and its place in the list. */
const segmentBytes = 96

type Entry =
  | { kind: 'running'; end: number }
  | { kind: 'output'; end: number; stream: Stream; source: 'head' | 'tail'; offset: number; bytes: number }
  | { kind: 'gap'; end: number; stream: Stream; bytes: number }
  | ({ kind: 'image'; end: number } & ShownImage)
  | { kind: 'ended'; end: number; result: RunResult }

/**
 * What a run has said so far, bounded: of each stream the head is kept as it comes, of what exceeds it the tail.
 * Readers follow the head live; the tail, with the size of the gap before it, comes when the run has ended.
 * So a reader can be as slow as it likes and costs nothing: it holds a position, not a buffer.
 */
export class Transcript {
  readonly #kept: Record<Stream, HeadAndTail>
  readonly #entries: Entry[] = []
  readonly #listeners = new Set<() => void>()
  #end = 0
  #imagesBytes = 0
  #ended = false

  /** @param softBytes kept per stream, head and tail together. */
  constructor(softBytes: number) {
    this.#kept = { stdout: keepWithin(softBytes), stderr: keepWithin(softBytes) }
  }

  get ended(): boolean {
    return this.#ended
  }

  /** Bytes of memory that hold output and its order. */
  get retainedBytes(): number {
    const { stdout, stderr } = this.#kept
    return stdout.retainedBytes + stderr.retainedBytes + this.#imagesBytes + this.#entries.length * segmentBytes
  }

  /** Calls back after each change until the returned function is called. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  running(): void {
    this.#push({ kind: 'running', end: this.#end + 1 })
  }

  /** Copies what it keeps of `bytes`. */
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

  /** Keeps `bytes` as they are; whoever tells of images holds to their bounds. */
  image(mimeType: ImageType, bytes: Uint8Array): void {
    this.#imagesBytes += bytes.length
    this.#push({ kind: 'image', end: this.#end + 1, mimeType, bytes })
  }

  /** The last word; nothing is appended after it. */
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

  /** @returns the event that follows `seq`, or `undefined` when there is none yet. */
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

  /** Binary search for the first entry that ends after `seq`. */
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

/** Three quarters of the soft limit are for the head, the rest for the tail. */
function keepWithin(softBytes: number): HeadAndTail {
  const tailLimit = Math.floor(softBytes / 4)
  return new HeadAndTail(softBytes - tailLimit, tailLimit)
}
