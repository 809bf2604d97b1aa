/** Code and input of queued runs in the memory of the runner; further runs are refused. */
const maxBytes = 512 * 1024 * 1024
/** Fraction of it that one organization can use. */
const orgShare = 1 / 4

/** Limits the memory of runs that wait for a place, so that one organization leaves room for the others. */
export class PendingStarts {
  readonly #maxBytes: number
  readonly #bytesOf = new Map<string, number>()
  #count = 0
  #bytes = 0

  /** @param limitBytes of all organizations together. */
  constructor(limitBytes: number = maxBytes) {
    this.#maxBytes = limitBytes
  }

  /** Number of runs that wait. */
  get count(): number {
    return this.#count
  }

  /** @param bytes of the code and the input of one run. @returns whether there was room; in this case `remove` must follow. */
  add(orgId: string, bytes: number): boolean {
    const ofOrg = (this.#bytesOf.get(orgId) ?? 0) + bytes
    if (ofOrg > this.#maxBytes * orgShare || this.#bytes + bytes > this.#maxBytes) return false
    this.#bytesOf.set(orgId, ofOrg)
    this.#bytes += bytes
    this.#count += 1
    return true
  }

  remove(orgId: string, bytes: number): void {
    const left = (this.#bytesOf.get(orgId) ?? 0) - bytes
    if (left > 0) this.#bytesOf.set(orgId, left)
    else this.#bytesOf.delete(orgId)
    this.#bytes -= bytes
    this.#count -= 1
  }
}
