/**
 * Keeps the beginning and the end of a byte stream within two limits and counts what lies between. A gap in the stream
 * starts the tail anew, so that head and tail never join bytes that were not adjacent.
 */
export class HeadAndTail {
  readonly #headLimit: number
  readonly #tailLimit: number
  #head = Buffer.alloc(0)
  #headBytes = 0
  /** Holds the last `#tailLimit` bytes of the tail; allocated with its first byte. */
  #ring: Buffer | undefined
  /** Bytes after the head and the last gap, kept or not. */
  #tailBytes = 0
  /** Bytes up to the last gap that are not in the head. */
  #skippedBytes = 0

  /**
   * @param headLimit in bytes.
   * @param tailLimit in bytes.
   */
  constructor(headLimit: number, tailLimit: number) {
    this.#headLimit = headLimit
    this.#tailLimit = tailLimit
  }

  get head(): Buffer {
    return this.#head.subarray(0, this.#headBytes)
  }

  get tail(): Buffer {
    const bytes = Math.min(this.#tailBytes, this.#tailLimit)
    if (this.#ring === undefined || bytes === 0) return Buffer.alloc(0)
    const start = (this.#tailBytes - bytes) % this.#tailLimit
    if (start === 0) return this.#ring.subarray(0, bytes)
    return Buffer.concat([this.#ring.subarray(start), this.#ring.subarray(0, start)]).subarray(0, bytes)
  }

  /** Bytes between head and tail that are not kept. */
  get omittedBytes(): number {
    return this.#skippedBytes + Math.max(this.#tailBytes - this.#tailLimit, 0)
  }

  /** Memory that is held, in bytes. */
  get retainedBytes(): number {
    return this.#head.length + (this.#ring?.length ?? 0)
  }

  /** Adds the next bytes of the stream. @returns how many of them went into the head. */
  append(bytes: Uint8Array): number {
    const isPastHead = this.#tailBytes > 0 || this.#skippedBytes > 0
    const headBytes = isPastHead ? 0 : Math.min(bytes.length, this.#headLimit - this.#headBytes)
    if (headBytes > 0) {
      this.#growHead(this.#headBytes + headBytes)
      this.#head.set(bytes.subarray(0, headBytes), this.#headBytes)
      this.#headBytes += headBytes
    }
    if (headBytes < bytes.length) this.appendToTail(bytes.subarray(headBytes))
    return headBytes
  }

  /** Adds the next bytes to the tail even if the head is not full; the head then takes no more. */
  appendToTail(bytes: Uint8Array): void {
    if (this.#tailLimit > 0) {
      this.#ring ??= Buffer.allocUnsafeSlow(this.#tailLimit)
      const kept = bytes.subarray(Math.max(bytes.length - this.#tailLimit, 0))
      const at = (this.#tailBytes + bytes.length - kept.length) % this.#tailLimit
      const firstBytes = Math.min(kept.length, this.#tailLimit - at)
      this.#ring.set(kept.subarray(0, firstBytes), at)
      this.#ring.set(kept.subarray(firstBytes), 0)
    }
    this.#tailBytes += bytes.length
  }

  /** Records a gap of so many bytes. What the tail held before it counts as omitted. */
  skip(bytes: number): void {
    this.#skippedBytes += this.#tailBytes + bytes
    this.#tailBytes = 0
  }

  #growHead(neededBytes: number): void {
    if (neededBytes <= this.#head.length) return
    const grown = Buffer.allocUnsafeSlow(Math.min(this.#headLimit, Math.max(neededBytes, this.#head.length * 2, 1024)))
    grown.set(this.head)
    this.#head = grown
  }
}
