/** The runs that this process follows. */
export class InFlight {
  readonly #runIds = new Set<string>()
  /** Called when the last run in flight has ended. */
  #idle: (() => void) | undefined

  get runIds(): readonly string[] {
    return [...this.#runIds]
  }

  has(runId: string): boolean {
    return this.#runIds.has(runId)
  }

  add(runId: string): void {
    this.#runIds.add(runId)
  }

  delete(runId: string): void {
    this.#runIds.delete(runId)
    if (this.#runIds.size === 0) this.#idle?.()
  }

  /** Waits until no run is in flight. @returns `false` if this takes longer than the limit. */
  async emptyWithin(limitMs: number): Promise<boolean> {
    if (this.#runIds.size === 0) return true
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, limitMs)
      this.#idle = () => {
        clearTimeout(timer)
        resolve()
      }
    })
    return this.#runIds.size === 0
  }
}
