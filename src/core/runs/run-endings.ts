import { RunChanges } from './run-changes.ts'

/** Time after which a row is read again, since another process can write it. */
const pollMs = 500

/** Announces within this process that the ending of a run was written, so that waiting calls need not poll. */
export class RunEndings {
  /** For those who watch all runs. */
  readonly changes = new RunChanges()
  readonly #watches = new Map<string, Set<EndingWatch>>()

  announce(runId: string): void {
    for (const watch of this.#watches.get(runId) ?? []) watch.notify()
  }

  /** Watches a run. Must be called before its row is read; the caller must call `stop` afterwards. */
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
   * Resolves when the row should be read again: immediately if the ending was announced since the last call, otherwise with
   * the announcement or after `afterMs`, since another process can write the row.
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
