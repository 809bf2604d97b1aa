import type { Slot } from './slot.ts'

export interface PoolSettings {
  /** Slots at once on this machine, bound or not; at least the number of runs at once. */
  slotsMax: number
  /** Unbound slots kept waiting. */
  slotsReady: number
  /** A bound slot that idles this long ends. */
  idleMs: number
  /** A slot ends after so many runs. */
  runsPerSlot: number
  /** A slot whose language host is this old ends before its next run. */
  zygoteMaxAgeMs: number
  /** Whether an idle slot has the jail of its next run waiting. */
  prewarmJails: boolean
}

/** The state of the pool, for metrics. */
export interface PoolEvents {
  /** A slot could not be made in the background, or not be ended. */
  failed(error: unknown): void
  /** `trouble` may have changed. */
  changed(): void
}

/** Makes an unbound slot. @param image what `ImageIdOf` returned. */
export type MakeSlot = (image: string) => Promise<Slot>

/**
 * Returns the ID of the image that a name refers to now, and of the default image without a name; empty: the machine's.
 * @throws Refusal image_unknown.
 */
export type ImageIdOf = (name: string | undefined) => string

/** A slot for one run. */
export interface Lease {
  slot: Slot
  /** Gives the slot back to the pool, which may end it. Resolves when it waits for another run or nothing of it is left. */
  release(): Promise<void>
}
