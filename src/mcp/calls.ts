import type { RequestId } from './json-rpc.ts'

/**
 * The calls of this front that are going on, so that `notifications/cancelled` can reach one. Clients are stateless
 * and number their requests as they like: two programs with the same key often use the same ids. A cancellation
 * therefore counts only while exactly one call of that key has that id; anything else would stop a stranger's run.
 */
export class Calls {
  readonly #calls = new Map<string, Set<AbortController>>()

  /** Registers a call until its end is told. */
  open(keyId: string, id: RequestId): { signal: AbortSignal; end: () => void } {
    const name = nameOf(keyId, id)
    const controller = new AbortController()
    const sameId = this.#calls.get(name) ?? new Set()
    this.#calls.set(name, sameId.add(controller))
    const end = () => {
      sameId.delete(controller)
      if (sameId.size === 0 && this.#calls.get(name) === sameId) this.#calls.delete(name)
    }
    return { signal: controller.signal, end }
  }

  /** @returns whether a call was cancelled. */
  cancel(keyId: string, id: RequestId): boolean {
    const [only, ...others] = this.#calls.get(nameOf(keyId, id)) ?? []
    if (only === undefined || others.length > 0) return false
    only.abort()
    return true
  }
}

const nameOf = (keyId: string, id: RequestId): string => `${keyId} ${JSON.stringify(id)}`
