import type { Stream } from '../../../base/run.ts'

/** Output up to the mark of a call, and whether it was reached. */
export interface Marked {
  before: Buffer
  isReached: boolean
}

const nothing = Buffer.alloc(0)

/**
 * An output stream of a kernel, in which a mark shows the end of the output of a call. Code can print anything, also a part of
 * a mark: the part is held back until the next bytes decide.
 */
export class MarkedStream {
  readonly stream: Stream
  #mark: Buffer | undefined
  #held: Buffer = nothing

  constructor(stream: Stream) {
    this.stream = stream
  }

  /** Waits for the mark of a call. */
  expect(nonce: string): void {
    this.#mark = Buffer.from(`\x1e${nonce}\x1e`)
  }

  get isExpecting(): boolean {
    return this.#mark !== undefined
  }

  /** Stops waiting. @returns what was held back. */
  giveUp(): Buffer {
    const held = this.#held
    this.#held = nothing
    this.#mark = undefined
    return held
  }

  /** @returns the output before the mark, and what follows it. */
  add(bytes: Uint8Array): Marked & { after: Buffer } {
    const chunk = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    if (!this.#mark) return { before: chunk, isReached: false, after: nothing }
    const all = this.#held.length > 0 ? Buffer.concat([this.#held, chunk]) : chunk
    this.#held = nothing
    const at = all.indexOf(this.#mark)
    if (at >= 0) {
      const after = all.subarray(at + this.#mark.length)
      this.#mark = undefined
      return { before: all.subarray(0, at), isReached: true, after }
    }
    const start = this.#startOfMark(all)
    this.#held = Buffer.from(all.subarray(start))
    return { before: all.subarray(0, start), isReached: false, after: nothing }
  }

  /** Returns the position of the part of a mark at the end of the bytes; their length if they end with no such part. */
  #startOfMark(all: Buffer): number {
    const mark = this.#mark as Buffer
    for (let start = Math.max(all.length - mark.length + 1, 0); start < all.length; start += 1)
      if (all[start] === mark[0] && mark.subarray(0, all.length - start).equals(all.subarray(start))) return start
    return all.length
  }
}
