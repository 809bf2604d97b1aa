/** Bytes that a sender may send before its receiver grants more. One sender waits at a time. */
export class Credit {
  #bytes: number
  #isClosed = false
  #waiting: { bytes: number; decide: (isGranted: boolean) => void } | undefined

  constructor(bytes: number) {
    this.#bytes = bytes
  }

  add(bytes: number): void {
    this.#bytes += bytes
    this.#settle()
  }

  /** Nothing more may be sent. */
  close(): void {
    this.#isClosed = true
    this.#settle()
  }

  /**
   * Waits until so many bytes may be sent, and deducts them. To be called again only when the last call has settled.
   * @returns whether they may be sent: false after `close`.
   */
  spend(bytes: number): Promise<boolean> {
    return new Promise((decide) => {
      this.#waiting = { bytes, decide }
      this.#settle()
    })
  }

  #settle(): void {
    const waiting = this.#waiting
    if (!waiting || (!this.#isClosed && this.#bytes < waiting.bytes)) return
    this.#waiting = undefined
    if (!this.#isClosed) this.#bytes -= waiting.bytes
    waiting.decide(!this.#isClosed)
  }
}
