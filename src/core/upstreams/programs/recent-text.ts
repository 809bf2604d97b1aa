/** Keeps the end of a stream of bytes. */
export class RecentText {
  readonly #maxBytes: number
  #pieces: Uint8Array[] = []
  #bytes = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  add(piece: Uint8Array): void {
    this.#pieces.push(piece)
    this.#bytes += piece.length
    while (this.#bytes - this.#pieces[0]!.length >= this.#maxBytes) this.#bytes -= this.#pieces.shift()!.length
    // Many small pieces would take more memory than their bytes.
    if (this.#pieces.length > 256) this.#pieces = [Buffer.concat(this.#pieces)]
  }

  /** Returns the text, without control characters that act on a terminal. */
  toString(): string {
    const kept = Buffer.concat(this.#pieces).subarray(-this.#maxBytes).toString('utf8')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are removed
    return kept.replaceAll(/\u001b\[[0-9;]*[A-Za-z]|[\u0000-\u0008\u000b-\u001f\u007f]/g, '')
  }
}
