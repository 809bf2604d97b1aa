/**
 * Writes text to a slow consumer without blocking the producer. Text that is added during a write is combined and written
 * next. The buffer has no limit of its own: the output of a run is limited by its profile.
 */
export class CoalescingWriter {
  readonly #write: (text: string) => Promise<void>
  readonly #onBuffered: (characters: number) => void
  #waiting = ''
  /** Size of the write in progress, in characters. */
  #writing = 0
  #going: Promise<void> | undefined

  /**
   * @param write resolves when the text was written, or when the consumer has disconnected.
   * @param onBuffered called with the size of the buffer when it changes.
   */
  constructor(write: (text: string) => Promise<void>, onBuffered: (characters: number) => void = () => {}) {
    this.#write = write
    this.#onBuffered = onBuffered
  }

  add(text: string): void {
    this.#waiting += text
    if (this.#waiting === '') return
    if (this.#going) this.#onBuffered(this.#writing + this.#waiting.length)
    else this.#going = this.#go()
  }

  /** Resolves when all text was written, or when the consumer has disconnected. */
  async settled(): Promise<void> {
    await this.#going
  }

  async #go(): Promise<void> {
    while (this.#waiting !== '') {
      const text = this.#waiting
      this.#waiting = ''
      this.#writing = text.length
      this.#onBuffered(this.#writing)
      await this.#write(text)
    }
    this.#writing = 0
    this.#onBuffered(0)
    this.#going = undefined
  }
}
