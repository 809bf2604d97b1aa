/** The processors that are assigned to one run until it releases them. */
export interface ProcessorShare {
  processors: readonly number[]
  /** Must be called once. */
  release(): void
}

/**
 * Distributes runs over the processors of the machine. A run sees, and is bound to, as many as its share requires. The
 * processors are chosen for each run, so that no run waits for a processor while another one is idle.
 */
export class Processors {
  readonly #loads: Map<number, number>

  /** @param available processors that runs can use, at least one. */
  constructor(available: readonly number[]) {
    this.#loads = new Map(available.map((processor) => [processor, 0]))
  }

  /** Returns the number of processors for a share: rounded up, at most all available ones. @param cpus share in cores. */
  countFor(cpus: number): number {
    return Math.max(1, Math.min(Math.ceil(cpus), this.#loads.size))
  }

  /** Assigns processors. @param cpus share in cores. @param before those of the last run of the slot; preferred. */
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
      // Rounding errors must not make a processor appear busy permanently.
      this.#loads.set(processor, sum < 1e-9 ? 0 : sum)
    }
  }
}

/** Parses a list such as `0-2,5`. https://man7.org/linux/man-pages/man7/cpuset.7.html */
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
