import type { Display } from './kernels/calls.ts'

/** Values that the calls in progress of one organization can have displayed: four calls at their limit. */
export const displaysOfOrgMaxBytes = 128 * 1024 * 1024

/** The memory of what calls in progress have displayed: an answer that is not streamed holds all of it until its end. */
export class HeldDisplays {
  readonly #byOrg = new Map<string, number>()

  /** Reserves memory. @returns false if the organization has reached its limit; nothing is reserved then. */
  hold(orgId: string, bytes: number): boolean {
    const held = (this.#byOrg.get(orgId) ?? 0) + bytes
    if (held > displaysOfOrgMaxBytes) return false
    this.#byOrg.set(orgId, held)
    return true
  }

  release(orgId: string, bytes: number): void {
    const left = (this.#byOrg.get(orgId) ?? 0) - bytes
    if (left > 0) this.#byOrg.set(orgId, left)
    else this.#byOrg.delete(orgId)
  }
}

/** Returns the size of all representations of a value. */
export const displayBytes = (display: Display): number =>
  Object.values(display).reduce((sum, { length }) => sum + length, 0)
