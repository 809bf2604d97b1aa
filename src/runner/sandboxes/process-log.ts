import type { ProcessEnding, ProcessEvent, ProcessStream } from '../../base/sandbox.ts'

/** Maximum size of an output event, in bytes. */
const maxEventBytes = 64 * 1024
/** Pieces that are kept in the order of their streams; beyond it the oldest are dropped as if they were too much. */
const maxPieces = 8_192

/** Dropped output of different streams that is reported separately. */
const gapsMax = 64
/** What is left of too many pieces. */
const crowdedShare = 7 / 8

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

/** Small output is collected in pieces that grow to this size, so that single bytes do not cost an object each. */
const pieceBytes = 4096
const leastPieceBytes = 64
/** Approximate memory of a piece besides its bytes. */
const overheadBytes = 256

/**
 * The bounded output of a process of a sandbox. Each byte has a sequence number, and so has the ending. The oldest output
 * is dropped first; what readers follow is not dropped, since the process waits for them then (see `unreadBytes`).
 */
export class ProcessLog {
  readonly #keepBytes: number
  /** Of the pieces with bytes: a program that changes its stream with each byte has one for each. */
  readonly #memoryMaxBytes: number
  #pieces: Piece[] = []
  readonly #listeners = new Set<() => void>()
  #keptBytes = 0
  #memoryBytes = 0
  #end = 0
  #ending: ProcessEnding | undefined
  /** Up to where output of the channel was handed to a reader; what follows is not dropped. */
  #channelRead = 0

  constructor(keepBytes: number) {
    this.#keepBytes = keepBytes
    this.#memoryMaxBytes = 2 * keepBytes
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

  /** Memory of the output that is kept, in bytes. */
  get memoryBytes(): number {
    return this.#memoryBytes
  }

  /** Calls a function after each change. @returns a function that stops this. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Adds output. Copies `bytes`. */
  append(stream: ProcessStream, bytes: Uint8Array): void {
    const last = this.#pieces.at(-1)
    const added = bytes.subarray(0, last?.stream === stream ? this.#makeRoom(last, bytes.length) : 0)
    if (last?.bytes !== undefined && added.length > 0) {
      last.bytes.set(added, last.filled)
      last.filled += added.length
      last.length += added.length
      last.end += added.length
    }
    const rest = bytes.subarray(added.length)
    if (rest.length > 0) {
      const piece = Buffer.allocUnsafeSlow(Math.max(rest.length, leastPieceBytes))
      piece.set(rest)
      this.#memoryBytes += piece.length + overheadBytes
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

  /** @returns how many of some bytes fit into a piece, after it has grown. */
  #makeRoom(piece: Piece, wanted: number): number {
    const { bytes, filled } = piece
    if (bytes === undefined) return 0
    const needed = Math.min(filled + wanted, pieceBytes)
    if (bytes.length < needed) {
      // Another one, since readers have views of it.
      piece.bytes = Buffer.allocUnsafeSlow(Math.min(Math.max(needed, 2 * bytes.length), pieceBytes))
      piece.bytes.set(bytes.subarray(0, filled))
      this.#memoryBytes += piece.bytes.length - bytes.length
    }
    return piece.bytes!.length - filled
  }

  #drop(): void {
    const isCrowded = this.#memoryBytes > this.#memoryMaxBytes || this.#pieces.length > maxPieces
    if (this.#keptBytes <= this.#keepBytes && !isCrowded) return
    // Many at once, since each time all of them are moved.
    const share = isCrowded ? crowdedShare : 1
    const first: Piece[] = []
    let index = 0
    for (; index < this.#pieces.length; index++) {
      const isWithin = this.#keptBytes <= this.#keepBytes && this.#memoryBytes <= this.#memoryMaxBytes * share
      if (isWithin && first.length + this.#pieces.length - index <= maxPieces * share) break
      const piece = this.#pieces[index]!
      if (piece.bytes !== undefined && !(piece.stream === 'channel' && piece.end > this.#channelRead)) {
        this.#keptBytes -= piece.length
        this.#memoryBytes -= piece.bytes.length + overheadBytes
        piece.bytes = undefined
      }
      if (!joinsGap(first, piece)) first.push(piece)
    }
    this.#pieces = [...first, ...this.#pieces.slice(index)]
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

/** Joins a dropped piece to the dropped one before it. @returns whether it did. */
function joinsGap(first: readonly Piece[], piece: Piece): boolean {
  const before = first.at(-1)
  if (before === undefined || before.bytes !== undefined || piece.bytes !== undefined) return false
  if (before.stream !== piece.stream && first.length < gapsMax) return false
  before.end = piece.end
  before.length += piece.length
  return true
}
