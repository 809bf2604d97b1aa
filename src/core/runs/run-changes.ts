import type { RunRow } from '../../store/store.ts'

/** A run has begun or ended. */
export interface RunChange {
  /** Larger than those of all earlier changes of this process. */
  seq: number
  runId: string
  orgId: string
  keyId: string
  change: 'began' | 'ended'
}

/** Kept for readers that connect again. */
const keptMax = 1_000

/** The latest runs that began and ended in this process, for those who watch all of them. */
export class RunChanges {
  #seq = 0
  readonly #kept: RunChange[] = []
  readonly #waiting = new Set<() => void>()

  add({ id, orgId, keyId }: Pick<RunRow, 'id' | 'orgId' | 'keyId'>, change: RunChange['change']): void {
    this.#seq += 1
    this.#kept.push({ seq: this.#seq, runId: id, orgId, keyId, change })
    if (this.#kept.length > keptMax) this.#kept.shift()
    for (const wake of this.#waiting) wake()
    this.#waiting.clear()
  }

  /** Number of the latest change; 0 before the first one. */
  get latest(): number {
    return this.#seq
  }

  /**
   * Returns the changes after a number, oldest first; `undefined` if some of them are no longer kept, or if the number is
   * that of another process.
   */
  after(seq: number): readonly RunChange[] | undefined {
    const oldest = this.#kept[0]?.seq ?? 1
    if (seq > this.#seq || seq + 1 < oldest) return undefined
    return this.#kept.slice(seq + 1 - oldest)
  }

  /** Resolves with the next change, or after a time in milliseconds. */
  next(withinMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, withinMs).unref()
    const wake = () => {
      clearTimeout(timer)
      resolve()
    }
    this.#waiting.add(wake)
    return promise.finally(() => this.#waiting.delete(wake))
  }
}
