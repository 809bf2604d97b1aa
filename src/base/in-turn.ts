/** Runs work with the same name one after the other; work with different names runs side by side. */
export class InTurn {
  readonly #last = new Map<string, Promise<unknown>>()

  /** Runs `work` when all earlier work with this name has settled. @returns what it returns. */
  async run<Result>(name: string, work: () => Promise<Result>): Promise<Result> {
    const before = this.#last.get(name)
    const own = (async () => {
      await before?.catch(() => {})
      return work()
    })()
    this.#last.set(name, own)
    try {
      return await own
    } finally {
      if (this.#last.get(name) === own) this.#last.delete(name)
    }
  }
}
