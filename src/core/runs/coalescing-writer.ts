/**
 * Writes text at the speed of a slow consumer without blocking the producer: text that is added during a write is combined
 * and written next. The buffer holds at most all text that was added, which for a run is limited by its kept output.
 */
export class CoalescingWriter {
  readonly #write: (text: string) => Promise<void>
  #waiting = ''
  #going: Promise<void> | undefined

  /** @param write resolves when the text was written, or when the consumer has disconnected. */
  constructor(write: (text: string) => Promise<void>) {
    this.#write = write
  }

  add(text: string): void {
    this.#waiting += text
    if (this.#waiting !== '') this.#going ??= this.#go()
  }

  /** Resolves when all text was written, or when the consumer has disconnected. */
  async settled(): Promise<void> {
    await this.#going
  }

  async #go(): Promise<void> {
    while (this.#waiting !== '') {
      const text = this.#waiting
      this.#waiting = ''
      await this.#write(text)
    }
    this.#going = undefined
  }
}
