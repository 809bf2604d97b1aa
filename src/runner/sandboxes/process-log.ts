import type { ProcessEnding, ProcessEvent, ProcessStream } from '../../base/sandbox.ts'

/** Maximum size of an output event, in bytes. */
const maxEventBytes = 64 * 1024
/** Pieces that are kept in the order of their streams; beyond it the oldest are dropped as if they were too much. */
const maxPieces = 16_384

/** Output in its order. Without `bytes` it was dropped, and a reader that comes to it gets a gap. */
interface Piece {
  /** Sequence number of its last byte. */
  end: number
  stream: ProcessStream
  length: number
  bytes: Buffer | undefined
  /** Bytes of `bytes` in use: small output is added to the last piece. */
  filled: number
}

/** Small output is collected in pieces of this size, so that single bytes do not cost an object each. */
const pieceBytes = 4096

/**
 * The bounded output of a process of a sandbox. Each byte has a sequence number, and so has the ending. The oldest output
 * is dropped first; what readers follow is not dropped, since the process waits for them then (see `unreadBytes`).
 */
export class ProcessLog {
  readonly #keepBytes: number
  readonly #pieces: Piece[] = []
  readonly #listeners = new Set<() => void>()
  #keptBytes = 0
  #end = 0
  #ending: ProcessEnding | undefined
  /** Up to where output of the channel was handed to a reader; what follows is not dropped. */
  #channelRead = 0

  constructor(keepBytes: number) {
    this.#keepBytes = keepBytes
  }

  get ending(): ProcessEnding | undefined {
    return this.#ending
  }

  /** Sequence number of the last byte. */
  get end(): number {
    return this.#end
  }

  get keptBytes(): number {
    return this.#keptBytes
  }

  /** Calls a function after each change. @returns a function that stops this. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Adds output. Copies `bytes`. */
  append(stream: ProcessStream, bytes: Uint8Array): void {
    const last = this.#pieces.at(-1)
    const room = last?.bytes !== undefined && last.stream === stream ? last.bytes.length - last.filled : 0
    const added = bytes.subarray(0, room)
    if (last?.bytes !== undefined && added.length > 0) {
      last.bytes.set(added, last.filled)
      last.filled += added.length
      last.length += added.length
      last.end += added.length
    }
    const rest = bytes.subarray(added.length)
    if (rest.length > 0) {
      const piece = Buffer.allocUnsafeSlow(Math.max(rest.length, pieceBytes))
      piece.set(rest)
      const end = this.#end + bytes.length
      this.#pieces.push({ end, stream, length: rest.length, bytes: piece, filled: rest.length })
    }
    this.#end += bytes.length
    this.#keptBytes += bytes.length
    this.#drop()
    this.#announce()
  }

  /** Adds the ending. Nothing can be added afterwards. */
  finish(ending: ProcessEnding): void {
    if (this.#ending) return
    this.#ending = ending
    this.#end += 1
    this.#announce()
    this.#listeners.clear()
  }

  /**
   * Returns where a reader begins that asks for what follows `seq`: at the newest output for a number beyond it, and before
   * the ending, so that every reader of a process that has ended gets its ending.
   */
  startAfter(seq: number): number {
    return Math.min(seq, this.#ending ? this.#end - 1 : this.#end)
  }

  /** Returns the event after `seq`; `undefined` if it does not exist yet. */
  after(seq: number): ProcessEvent | undefined {
    const piece = this.#pieces[this.#indexAfter(seq)]
    if (piece === undefined)
      return this.#ending && seq < this.#end ? { kind: 'ended', seq: this.#end, ending: this.#ending } : undefined
    const from = Math.max(seq - (piece.end - piece.length), 0)
    const { stream } = piece
    if (piece.bytes === undefined) return { kind: 'gap', seq: piece.end, stream, bytes: piece.length - from }
    const bytes = piece.bytes.subarray(from, Math.min(piece.length, from + maxEventBytes))
    return { kind: 'output', seq: piece.end - piece.length + from + bytes.length, stream, bytes }
  }

  /** A reader has taken everything up to `seq`. */
  read(seq: number): void {
    this.#channelRead = Math.max(this.#channelRead, seq)
  }

  /** Output of the channel that no reader has taken yet, in bytes. */
  get unreadChannelBytes(): number {
    let bytes = 0
    for (let index = this.#indexAfter(this.#channelRead); index < this.#pieces.length; index++) {
      const piece = this.#pieces[index]
      if (piece?.stream === 'channel') bytes += Math.min(piece.length, piece.end - this.#channelRead)
    }
    return bytes
  }

  #drop(): void {
    for (let index = 0; index < this.#pieces.length; index++) {
      if (this.#keptBytes <= this.#keepBytes && this.#pieces.length <= maxPieces) break
      const piece = this.#pieces[index]!
      if (piece.bytes !== undefined && !(piece.stream === 'channel' && piece.end > this.#channelRead)) {
        this.#keptBytes -= piece.length
        piece.bytes = undefined
      }
      index -= this.#mergeBefore(index)
    }
  }

  /** Joins a dropped piece to the dropped one before it. @returns 1 if it did. */
  #mergeBefore(index: number): number {
    const before = this.#pieces[index - 1]
    const piece = this.#pieces[index]
    if (before === undefined || piece === undefined || before.bytes !== undefined || piece.bytes !== undefined) return 0
    if (before.stream !== piece.stream && this.#pieces.length <= maxPieces) return 0
    before.end = piece.end
    before.length += piece.length
    this.#pieces.splice(index, 1)
    return 1
  }

  /** Returns the first piece that ends after `seq`, by binary search. */
  #indexAfter(seq: number): number {
    let low = 0
    let high = this.#pieces.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.#pieces[middle]!.end > seq) high = middle
      else low = middle + 1
    }
    return low
  }

  #announce(): void {
    for (const listener of [...this.#listeners]) listener()
  }
}
