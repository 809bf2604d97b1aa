import { mkdirSync, readdirSync, readFileSync, readlinkSync, symlinkSync, unlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'

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
 * A lease is a symbolic link, named by the first id, whose target names the owner and from where the owner can be seen:
 * made in one step, refused by the kernel when it exists.
 */
export class IdRanges {
  /** Shared by all instances. */
  readonly dir: string
  readonly #owner: string
  readonly #base: number
  readonly #count: number
  #next = 0

  constructor(dir: string, owner: string, base: number) {
    this.dir = dir
    this.#owner = owner
    // On whole ranges, so that leases of instances with different bases speak of the same ranges.
    this.#base = Math.ceil(base / idsPerSlot) * idsPerSlot
    this.#count = Math.floor((idsEnd - this.#base) / idsPerSlot)
    if (!Number.isSafeInteger(base) || base < idsPerSlot || this.#count < 1)
      throw new RangeError(`no id range fits between ${base} and ${idsEnd}`)
    // Slots pass through the parent, which other directories of the state share.
    mkdirSync(dirname(dir), { recursive: true, mode: 0o711 })
    mkdirSync(dir, { recursive: true, mode: 0o700 })
  }

  /** @throws Error when every range of the machine is taken. */
  lease(): IdRange {
    for (let tried = 0; tried < this.#count; tried++) {
      // Going round, so that a range rests as long as possible before its next use.
      const index = this.#next
      this.#next = (index + 1) % this.#count
      const first = this.#base + index * idsPerSlot
      const path = join(this.dir, String(first))
      if (!tryLink(`${this.#owner} ${viewpoint()}`, path)) continue
      return { first, release: () => unlinkIfThere(path) }
    }
    throw new Error(`all ${this.#count} id ranges of this machine are in use`)
  }

  /**
   * Takes back what a dead process of this instance had leased, and what instances had that are no more. Between looking
   * and taking back no instance may begin to lease, so all of them come here first, one at a time.
   * @param isGone whether nothing of an instance is left on this machine; asked of those that could be seen from here.
   * @returns how many.
   */
  reclaim(isGone: (owner: string) => boolean): number {
    const here = viewpoint()
    const gone = new Map([[this.#owner, true]])
    const leases = readdirSync(this.dir).map((name) => ({ name, ...leaseAt(join(this.dir, name)) }))
    const strangers = leases.filter(({ owner, seenFrom }) => owner !== this.#owner && seenFrom === here)
    for (const { owner } of strangers) if (!gone.has(owner)) gone.set(owner, isGone(owner))
    const left = leases.filter(({ owner }) => gone.get(owner) === true)
    // Of others, none is taken back that a process still lives with, whatever its owner is thought to be.
    const used = left.some(({ owner }) => owner !== this.#owner) ? rangesInUse() : new Set()
    const free = left.filter(({ owner, name }) => owner === this.#owner || !used.has(Number(name)))
    for (const { name } of free) unlinkIfThere(join(this.dir, name))
    return free.length
  }
}

/**
 * What decides which cgroups, processes and locks a process can see. An instance in another container may live although
 * nothing of it shows here.
 */
const viewpoint = (): string => ['cgroup', 'pid', 'net'].map((name) => readlinkSync(`/proc/self/ns/${name}`)).join(' ')

function leaseAt(path: string): { owner: string; seenFrom: string } {
  const [owner = '', ...seenFrom] = targetOf(path).split(' ')
  return { owner, seenFrom: seenFrom.join(' ') }
}

/** The ranges of all ids that any process has now, by their first ids. */
function rangesInUse(): Set<number> {
  const ids = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => textOf(`/proc/${pid}/status`).match(/^[UG]id:.*/gm) ?? [])
    .flatMap((line) => line.split('\t').slice(1).map(Number))
  return new Set(ids.map((id) => id - (id % idsPerSlot)))
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

/** Empty when it is gone: others give theirs back at any moment. */
function targetOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return ''
  }
}
