/**
 * Hands text on at the pace of whoever takes it, so that who tells it never waits: what comes while something is still
 * being taken goes next, in one piece. Held is at most what was added, which for a run is what is kept of its output.
 */
export class CoalescingWriter {
  readonly #write: (text: string) => Promise<void>
  #waiting = ''
  #going: Promise<void> | undefined

  /** @param write resolves when the text was taken, or nobody is there any more. */
  constructor(write: (text: string) => Promise<void>) {
    this.#write = write
  }

  add(text: string): void {
    this.#waiting += text
    if (this.#waiting !== '') this.#going ??= this.#go()
  }

  /** Resolves when everything was taken, or nobody is there any more. */
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
