type Undo = () => Promise<void> | void

/**
 * Acquired resources with their release functions. `run` releases the newest first and continues after failures; what
 * failed stays registered, so that another `run` repeats it. `keep` transfers the responsibility to a new owner.
 */
export class Cleanup {
  #undos: Undo[] = []

  /** Registers one undo. */
  add(undo: Undo): void {
    this.#undos.push(undo)
  }

  /** Registers the release of a resource and returns the resource. */
  owns<T extends { release(): Promise<void> | void }>(resource: T): T {
    this.add(() => resource.release())
    return resource
  }

  /** Moves all registrations into a new Cleanup; this one is empty afterwards. */
  keep(): Cleanup {
    const kept = new Cleanup()
    kept.#undos = this.#undos
    this.#undos = []
    return kept
  }

  /**
   * Runs every release function, newest first, even if one fails.
   * @throws AggregateError with all failures, after the last function has run.
   */
  async run(): Promise<void> {
    const failures: unknown[] = []
    const left: Undo[] = []
    for (let undo = this.#undos.pop(); undo; undo = this.#undos.pop()) {
      try {
        await undo()
      } catch (error) {
        failures.push(error)
        left.unshift(undo)
      }
    }
    this.#undos.unshift(...left)
    if (failures.length > 0) throw new AggregateError(failures, 'cleaning up failed')
  }
}
