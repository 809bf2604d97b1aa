import { mkdirSync, readdirSync, readlinkSync, symlinkSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'

/** Ids of one slot: 0..65535 inside are `first`..`first + 65535` on the host. */
export const idsPerSlot = 65_536

/** Ids beyond 0x7fffffff are trouble for programs that hold them in signed integers. */
const idsEnd = 0x8000_0000

export interface IdRange {
  readonly first: number
  /** Gives the range back; only when nothing lives that uses its ids. */
  release(): void
}

/**
 * Leases id ranges for this instance; no two live slots of the machine share one, whichever instance they belong to.
 * A lease is a symbolic link, named by the first id, whose target names the owner: made in one step, refused by the kernel when it exists.
 */
export class IdRanges {
  readonly #dir: string
  readonly #owner: string
  readonly #base: number
  readonly #count: number
  #next = 0

  constructor(dir: string, owner: string, base: number) {
    this.#dir = dir
    this.#owner = owner
    // On whole ranges, so that leases of instances with different bases speak of the same ranges.
    this.#base = Math.ceil(base / idsPerSlot) * idsPerSlot
    this.#count = Math.floor((idsEnd - this.#base) / idsPerSlot)
    if (!Number.isSafeInteger(base) || base < idsPerSlot || this.#count < 1)
      throw new RangeError(`no id range fits between ${base} and ${idsEnd}`)
    mkdirSync(dir, { recursive: true, mode: 0o700 })
  }

  /** @throws Error when every range of the machine is taken. */
  lease(): IdRange {
    for (let tried = 0; tried < this.#count; tried++) {
      // Going round, so that a range rests as long as possible before its next use.
      const index = this.#next
      this.#next = (index + 1) % this.#count
      const first = this.#base + index * idsPerSlot
      const path = join(this.#dir, String(first))
      if (!tryLink(this.#owner, path)) continue
      return { first, release: () => unlinkIfThere(path) }
    }
    throw new Error(`all ${this.#count} id ranges of this machine are in use`)
  }

  /** Takes back what a dead process of this instance had leased. @returns how many. */
  reclaim(): number {
    const mine = readdirSync(this.#dir).filter((name) => ownerOf(join(this.#dir, name)) === this.#owner)
    for (const name of mine) unlinkIfThere(join(this.#dir, name))
    return mine.length
  }
}

function tryLink(target: string, path: string): boolean {
  try {
    symlinkSync(target, path)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function unlinkIfThere(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}

function ownerOf(path: string): string | undefined {
  try {
    return readlinkSync(path)
  } catch {
    return undefined
  }
}
