const lineFeed = 0x0a
const carriageReturn = 0x0d

/** A line is longer than a reader accepts. */
export class LineTooLong extends Error {
  readonly maxBytes: number

  constructor(maxBytes: number) {
    super(`a line has more than ${maxBytes} bytes`)
    this.maxBytes = maxBytes
  }
}

/**
 * Splits a stream into lines: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio.
 * Lines end with LF or CRLF, in any pieces. Empty lines are skipped.
 */
export class LineReader {
  readonly #maxBytes: number
  #pieces: Uint8Array[] = []
  #bytes = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /** Adds a piece of the stream. @returns the lines that it completes. @throws LineTooLong. */
  add(piece: Uint8Array): string[] {
    const lines: string[] = []
    let start = 0
    for (let end = piece.indexOf(lineFeed); end >= 0; end = piece.indexOf(lineFeed, start)) {
      this.#keep(piece.subarray(start, end))
      start = end + 1
      const line = this.#take()
      if (line !== '') lines.push(line)
    }
    this.#keep(piece.subarray(start))
    return lines
  }

  #keep(piece: Uint8Array): void {
    if (piece.length === 0) return
    this.#bytes += piece.length
    if (this.#bytes > this.#maxBytes) throw new LineTooLong(this.#maxBytes)
    // A copy, since a short line would keep the whole piece in memory.
    this.#pieces.push(Uint8Array.from(piece))
  }

  #take(): string {
    const bytes = this.#pieces.length === 1 ? Buffer.from(this.#pieces[0]!) : Buffer.concat(this.#pieces)
    this.#pieces = []
    this.#bytes = 0
    return bytes.toString('utf8', 0, bytes.at(-1) === carriageReturn ? bytes.length - 1 : bytes.length)
  }
}
