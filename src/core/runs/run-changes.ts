import { LRUCache } from 'lru-cache'
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

/** Kept of one organization for readers that connect again, so that none pushes out the changes of another. */
const keptMax = 1_000
const orgsMax = 200

interface Kept {
  changes: RunChange[]
  /** Number of the latest change that is no longer kept; 0 for none. */
  lost: number
}

/** The latest runs that began and ended in this process, for those who watch all of them. */
export class RunChanges {
  #seq = 0
  /** Number of the latest change of an organization that is no longer kept at all. */
  #lost = 0
  readonly #orgs = new LRUCache<string, Kept>({
    max: orgsMax,
    dispose: ({ changes }, _orgId, reason) => {
      if (reason === 'evict') this.#lost = Math.max(this.#lost, changes.at(-1)?.seq ?? 0)
    },
  })
  readonly #waiting = new Set<() => void>()

  add({ id, orgId, keyId }: Pick<RunRow, 'id' | 'orgId' | 'keyId'>, change: RunChange['change']): void {
    this.#seq += 1
    const kept = this.#orgs.get(orgId) ?? { changes: [], lost: 0 }
    kept.changes.push({ seq: this.#seq, runId: id, orgId, keyId, change })
    if (kept.changes.length > keptMax) kept.lost = kept.changes.shift()?.seq ?? 0
    if (!this.#orgs.has(orgId)) this.#orgs.set(orgId, kept)
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
   * @param orgId whose changes; `null` for those of all organizations.
   */
  after(seq: number, orgId: string | null): readonly RunChange[] | undefined {
    if (seq > this.#seq) return undefined
    const orgs =
      orgId === null ? [...this.#orgs.values()] : [this.#orgs.peek(orgId)].filter((kept) => kept !== undefined)
    // One organization alone can be watched longer than it is kept.
    if (seq < this.#lost && (orgId === null || orgs.length === 0)) return undefined
    if (orgs.some(({ lost }) => seq < lost)) return undefined
    const found = orgs.flatMap(({ changes }) => changes.slice(firstAfter(changes, seq)))
    return orgs.length > 1 ? found.toSorted((one, other) => one.seq - other.seq) : found
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

function firstAfter(changes: readonly RunChange[], seq: number): number {
  let at = changes.length
  while (at > 0 && changes[at - 1]!.seq > seq) at -= 1
  return at
}
