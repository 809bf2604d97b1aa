/** How long to wait before the next attempt after so many failures. An attempt itself waits for processes to end. */
const pauseMs = (failures: number): number => Math.min(250 * 2 ** (failures - 1), 30_000)

/** How long `close` waits for removals, in milliseconds: less than the supervisor waits for the runner to end. */
const closeWithinMs = 5_000

interface Removal {
  /** Resolves when it succeeded, or when the attempts were given up. */
  done: Promise<void>
}

/** Removals that failed and are repeated until they succeed. */
export class Removals {
  readonly #failed: (error: unknown) => void
  readonly #pending = new Map<object, Removal>()
  readonly #closing = new AbortController()

  /** @param failed receives the error of each further attempt. */
  constructor(failed: (error: unknown) => void) {
    this.#failed = failed
  }

  get size(): number {
    return this.#pending.size
  }

  /** Repeats a removal whose first attempt failed. @param gone called when an attempt succeeded. */
  add(what: object, remove: () => Promise<void>, gone: () => void): void {
    this.#pending.set(what, { done: this.#repeat(what, remove, gone) })
  }

  /** Resolves when a thing is removed, or when its removal was given up. */
  async removed(what: object): Promise<void> {
    await this.#pending.get(what)?.done
  }

  /** Gives up what cannot be removed within a few seconds. */
  async close(): Promise<void> {
    const timer = setTimeout(() => this.#closing.abort(), closeWithinMs)
    await Promise.all([...this.#pending.values()].map(({ done }) => done))
    clearTimeout(timer)
  }

  async #repeat(what: object, remove: () => Promise<void>, gone: () => void): Promise<void> {
    for (let failures = 1; !this.#closing.signal.aborted; failures++) {
      await this.#pause(pauseMs(failures))
      try {
        await remove()
        this.#pending.delete(what)
        gone()
        return
      } catch (error) {
        this.#failed(error)
      }
    }
  }

  #pause(delayMs: number): Promise<void> {
    const { signal } = this.#closing
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, delayMs)
      signal.addEventListener(
        'abort',
        () => {
          clearTimeout(timer)
          resolve()
        },
        { once: true },
      )
    })
  }
}
