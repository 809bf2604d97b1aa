type Undo = () => Promise<void> | void

/**
 * What was acquired, with its undo. `run` releases newest first, once, and goes on past failures;
 * `keep` hands the duty over to the new owner.
 */
export class Cleanup {
  #undos: Undo[] = []

  /** Registers one undo. */
  add(undo: Undo): void {
    this.#undos.push(undo)
  }

  /** Registers a resource by its own release and returns it. */
  owns<T extends { release(): Promise<void> | void }>(resource: T): T {
    this.add(() => resource.release())
    return resource
  }

  /** Moves all undos into a Cleanup of their own; this one is empty afterwards. */
  keep(): Cleanup {
    const kept = new Cleanup()
    kept.#undos = this.#undos
    this.#undos = []
    return kept
  }

  /**
   * Runs every undo, newest first, also when one fails.
   * @throws AggregateError of all that failed, after the last one ran.
   */
  async run(): Promise<void> {
    const failures: unknown[] = []
    for (let undo = this.#undos.pop(); undo; undo = this.#undos.pop()) {
      try {
        await undo()
      } catch (error) {
        failures.push(error)
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, 'cleaning up failed')
  }
}
