/** A row that another process writes is noticed after this time, in milliseconds. */
const pollMs = 500

/** Announces within this process that the row of a run has its ending, so that nothing has to poll for it. */
export class RunEndings {
  readonly #watches = new Map<string, Set<EndingWatch>>()

  announce(runId: string): void {
    for (const watch of this.#watches.get(runId) ?? []) watch.notify()
  }

  /** Starts to watch a run. To be called before its row is read, and stopped afterwards. */
  watch(runId: string): EndingWatch {
    const watches = this.#watches.get(runId) ?? new Set()
    this.#watches.set(runId, watches)
    const watch: EndingWatch = new EndingWatch(() => {
      watches.delete(watch)
      if (watches.size === 0) this.#watches.delete(runId)
    })
    watches.add(watch)
    return watch
  }
}

/** Watches the row of one run. */
export class EndingWatch {
  readonly stop: () => void
  #isAnnounced = false
  #wake: (() => void) | undefined

  constructor(stop: () => void) {
    this.stop = stop
  }

  notify(): void {
    this.#isAnnounced = true
    this.#wake?.()
  }

  /**
   * Resolves when the row should be read again: at once if its ending was announced since the last call, otherwise
   * with the announcement, or after a time, since another process may write the row.
   */
  async changed(afterMs = pollMs): Promise<void> {
    if (!this.#isAnnounced) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, afterMs)
        this.#wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
    this.#wake = undefined
    this.#isAnnounced = false
  }
}
