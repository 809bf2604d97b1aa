import type { RequestId } from './json-rpc/message.ts'

/**
 * The calls in progress in this process, for `notifications/cancelled`. Request ids are chosen by clients and unique
 * only within one, and two clients with the same key often use the same ids. A cancellation is therefore ignored
 * unless exactly one call of the key has the id; otherwise it could stop the call of another client.
 */
export class ActiveCalls {
  readonly #calls = new Map<string, Set<AbortController>>()

  /** Registers a call. @returns the signal that a cancellation aborts, and a function to call at the end. */
  start(keyId: string, id: RequestId): { signal: AbortSignal; end: () => void } {
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

  /** Cancels every call. */
  cancelAll(): void {
    for (const calls of this.#calls.values()) for (const controller of calls) controller.abort()
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
