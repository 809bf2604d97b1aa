/** Provides the time; tests use one that they set themselves. */
export interface SandboxClock {
  /** Milliseconds since 1970. */
  nowMs(): number
}

export const systemClock: SandboxClock = { nowMs: () => Date.now() }

interface Use {
  open: number
  lastMs: number
  /** Whether `lastMs` is newer than the row. */
  isNew: boolean
}

/** Records when sandboxes were used. It is kept in memory, so that a call does not have to write. */
export class SandboxActivity {
  readonly #clock: SandboxClock
  readonly #uses = new Map<string, Use>()

  constructor(clock: SandboxClock) {
    this.#clock = clock
  }

  /** Begins a use. @returns a function that ends it, which can be called twice. */
  begin(sandboxId: string): () => void {
    const use = this.#touch(sandboxId)
    use.open += 1
    let isOpen = true
    return () => {
      if (!isOpen) return
      isOpen = false
      use.open -= 1
      this.#touch(sandboxId)
    }
  }

  /** Returns whether a call is in progress, and when the last one was. @param storedMs last use that the row knows. */
  of(sandboxId: string, storedMs: number): { inUse: boolean; lastMs: number } {
    const use = this.#uses.get(sandboxId)
    return { inUse: (use?.open ?? 0) > 0, lastMs: Math.max(use?.lastMs ?? 0, storedMs) }
  }

  /** Returns the last use where the row does not know it yet. */
  takeNew(sandboxId: string): number | undefined {
    const use = this.#uses.get(sandboxId)
    if (!use?.isNew) return undefined
    use.isNew = false
    return use.lastMs
  }

  /** Forgets all sandboxes but these, except where a call is in progress. */
  keepOnly(sandboxIds: ReadonlySet<string>): void {
    for (const [id, { open, isNew }] of this.#uses) {
      if (open === 0 && !isNew && !sandboxIds.has(id)) this.#uses.delete(id)
    }
  }

  #touch(sandboxId: string): Use {
    const use = this.#uses.get(sandboxId) ?? { open: 0, lastMs: 0, isNew: true }
    use.lastMs = this.#clock.nowMs()
    use.isNew = true
    this.#uses.set(sandboxId, use)
    return use
  }
}
