/** Processes of one sandbox that the kernel killed for memory. Its counter says how many, not which. */
export class MemoryKills {
  readonly limitBytes: number
  readonly #count: () => number
  /** Up to which of them endings of killed processes are known. */
  #attributed = 0

  /** @param count kills since the sandbox began, by the counter of the kernel. */
  constructor(limitBytes: number, count: () => number) {
    this.limitBytes = limitBytes
    this.#count = count
  }

  /** Returns the kills so far, to be given to the other methods when a process ends that starts now. */
  mark(): number {
    return this.#count()
  }

  /**
   * Attributes one kill to a process that died of SIGKILL without being sent it.
   * @returns false if there was none during its life that is not attributed to another process.
   */
  attribute(mark: number): boolean {
    const from = Math.max(mark, this.#attributed)
    if (this.#count() <= from) return false
    this.#attributed = from + 1
    return true
  }

  /** Returns the kills during the life of a process that are not attributed: of its descendants, or of others. */
  since(mark: number): number {
    return Math.max(0, this.#count() - Math.max(mark, this.#attributed))
  }
}
