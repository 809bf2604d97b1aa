/** Minutes that are counted. */
const minutesMax = 10

/** Counts calls and failures of the last minutes. */
export class MinuteCounts {
  readonly #calls = new Array<number>(minutesMax).fill(0)
  readonly #failures = new Array<number>(minutesMax).fill(0)
  #minute = 0

  count(isFailure: boolean): void {
    const at = this.#advance() % minutesMax
    this.#calls[at]! += 1
    if (isFailure) this.#failures[at]! += 1
  }

  /** Returns the counts of the last ten minutes. */
  get recent(): { calls: number; failures: number } {
    this.#advance()
    return { calls: sumOf(this.#calls), failures: sumOf(this.#failures) }
  }

  /** Empties the minutes that have begun since the last call. @returns the current minute. */
  #advance(): number {
    const now = Math.floor(performance.now() / 60_000)
    for (let minute = Math.max(this.#minute + 1, now - minutesMax + 1); minute <= now; minute++) {
      this.#calls[minute % minutesMax] = 0
      this.#failures[minute % minutesMax] = 0
    }
    this.#minute = now
    return now
  }
}

const sumOf = (counts: readonly number[]): number => counts.reduce((sum, count) => sum + count, 0)
