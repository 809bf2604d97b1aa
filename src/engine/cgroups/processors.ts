/** The processors that one run is given, until it gives them back. */
export interface ProcessorShare {
  processors: readonly number[]
  /** To be called once. */
  release(): void
}

/**
 * Spreads runs over the processors of the machine. A run is shown, and bound to, as many as its share needs; which
 * ones is decided anew for each run, so that none waits for a processor while another is free.
 */
export class Processors {
  readonly #loads: Map<number, number>

  /** @param available the ones that runs may use, at least one. */
  constructor(available: readonly number[]) {
    this.#loads = new Map(available.map((processor) => [processor, 0]))
  }

  /** How many a run of this share is given: rounded up, and no more than there are. @param cpus share in cores. */
  countFor(cpus: number): number {
    return Math.max(1, Math.min(Math.ceil(cpus), this.#loads.size))
  }

  /** @param cpus share in cores. @param before what the same slot had last: kept where nothing speaks against it. */
  take(cpus: number, before: readonly number[]): ProcessorShare {
    const rank = ([processor, load]: [number, number]) => [load, before.includes(processor) ? 0 : 1, processor] as const
    const processors = [...this.#loads]
      .sort((a, b) => {
        const [left, right] = [rank(a), rank(b)]
        return left[0] - right[0] || left[1] - right[1] || left[2] - right[2]
      })
      .slice(0, this.countFor(cpus))
      .map(([processor]) => processor)
      .sort((a, b) => a - b)
    const load = cpus / processors.length
    this.#add(processors, load)
    return { processors, release: () => this.#add(processors, -load) }
  }

  #add(processors: readonly number[], load: number): void {
    for (const processor of processors) {
      const sum = (this.#loads.get(processor) ?? 0) + load
      // Rounding must not leave a processor that looks busy for good.
      this.#loads.set(processor, sum < 1e-9 ? 0 : sum)
    }
  }
}

/** `0-2,5` as numbers. https://man7.org/linux/man-pages/man7/cpuset.7.html */
export function processorsOf(list: string): number[] {
  return list
    .trim()
    .split(',')
    .filter(Boolean)
    .flatMap((part) => {
      const [first = 0, last = first] = part.split('-').map(Number)
      return Array.from({ length: last - first + 1 }, (_, at) => first + at)
    })
}
