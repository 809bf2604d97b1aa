import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Runner, StorageRef, StorageStatus } from '../../runner/protocol/messages.ts'
import type { ThreadRow } from '../../store/storage-rows.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import { checkThreadId } from './files.ts'
import { requireStorageRoom } from './storage-limit.ts'

/** A thread as its org sees it. */
export interface ThreadView {
  id: string
  /** Room that it takes on the disk. */
  size_bytes: number
  created_at: string
  last_used_at: string
  /** Whether a run has it. */
  busy: boolean
}

export interface InspectedThread extends ThreadView {
  /** What it may hold, and what it holds. */
  quota_bytes: number
  used_bytes: number
}

/** What the verbs of threads need. */
export const threadNeeds = {
  list: 'threads.read',
  inspect: 'threads.read',
  fork: 'threads.write',
  remove: 'threads.write',
} as const

/** Idle threads that one look removes. */
const removedAtOnce = 100
const dayMs = 86_400_000

/**
 * Threads beside the runs that use them. A row and its image come and go together: the row says first what is about to
 * happen, and whatever a crash left in between is finished, or undone, by `settle`.
 */
export class Threads {
  readonly #store: Store
  readonly #runner: Runner
  /** What this front is at, so that `settle` leaves it alone. */
  readonly #underWay = new Set<string>()

  constructor(store: Store, runner: Runner) {
    this.#store = store
    this.#runner = runner
  }

  /** The threads of the caller's org, by id. @throws Refusal threads_unavailable, invalid_argument. */
  async list(caller: Caller, asked: PageRequest): Promise<Page<ThreadView>> {
    requireThreads(caller)
    const { orgId } = caller
    const { items, nextCursor } = await page(
      asked,
      [''],
      ({ id }: ThreadRow) => [id],
      ([after], limit) => this.#store.threads.page(orgId, after, limit),
    )
    const ids = items.map(({ id }) => id)
    const sizes = await this.#runner.storage.sizes('threads', orgId, ids)
    return { items: items.map((row, n) => toView(row, sizes[n] ?? 0)), nextCursor }
  }

  /** @throws Refusal thread_unknown (also for a thread of another org), threads_unavailable, unavailable. */
  async inspect(caller: Caller, id: string): Promise<InspectedThread> {
    const row = await this.#existing(caller, id)
    const { sizeBytes, usedBytes, quotaBytes } = await this.#runner.storage
      .inspect(refOf(row))
      .catch(noneYet(row.quotaBytes ?? 0))
    return { ...toView(row, sizeBytes), quota_bytes: row.quotaBytes ?? quotaBytes, used_bytes: usedBytes }
  }

  /** Deletes a thread with all that it holds. @throws Refusal thread_unknown, thread_busy. */
  async remove(caller: Caller, id: string): Promise<void> {
    const { orgId } = await this.#existing(caller, id)
    await this.#alone(orgId, id, async () => {
      if (!(await this.#store.threads.beginRemoval(orgId, id, timestamp()))) {
        throw new Refusal('thread_busy', { thread: id })
      }
      await this.#finishRemoval(orgId, id)
    })
  }

  /**
   * Copies a thread with all that it holds; the copy belongs to whom the thread does.
   * @throws Refusal thread_unknown, thread_exists, thread_busy (by a run, or by files that are read or written),
   * limit_reached, unavailable.
   */
  async fork(caller: Caller, id: string, to: string): Promise<ThreadView> {
    const from = await this.#existing(caller, id)
    checkThreadId('to', to)
    if (to === id) throw new Refusal('thread_exists', { thread: to })
    if (isBusy(from)) throw new Refusal('thread_busy', { thread: id })
    await requireStorageRoom(this.#store, from.orgId, from.quotaBytes ?? 0)
    const at = timestamp()
    const { orgId, subject, profile, quotaBytes } = from
    return this.#alone(orgId, to, async () => {
      const row = { orgId, id: to, createdAt: at, lastUsedAt: at, subject, profile, quotaBytes }
      if (!(await this.#store.threads.beginMaking(row))) throw new Refusal('thread_exists', { thread: to })
      await this.#copy(from, to)
      await this.#store.threads.settle(orgId, to)
      return this.inspect(caller, to)
    })
  }

  /**
   * Finishes, or undoes, what was begun and is not under way: what was being removed is removed, and so is what was
   * being made, since nobody was told that it is there.
   * @throws Refusal unavailable while no runner is there; all of it is tried again with the next call.
   */
  async settle(): Promise<void> {
    for (const { orgId, id } of await this.#store.threads.unsettled()) {
      await this.#alone(orgId, id, async () => {
        await this.#runner.storage.remove({ area: 'threads', org: orgId, name: id })
        await this.#store.threads.remove(orgId, id)
      }).catch(passBusy)
    }
  }

  /**
   * Removes threads that were not used for longer than their profile keeps them.
   * @param daysOf how long a profile of an org keeps threads; `null`: for ever.
   * @returns how many.
   */
  async expire(daysOf: (orgId: string, profile: string | null) => Promise<number | null>): Promise<number> {
    let removed = 0
    for (const use of await this.#store.threads.uses()) {
      const days = await daysOf(use.orgId, use.profile)
      if (days === null) continue
      const unusedSince = new Date(Date.now() - days * dayMs).toISOString()
      const idle = await this.#store.threads.idle(use, timestamp(), unusedSince, removedAtOnce)
      for (const { orgId, id } of idle) if (await this.#expireOne(orgId, id, unusedSince)) removed += 1
    }
    return removed
  }

  async #expireOne(orgId: string, id: string, unusedSince: string): Promise<boolean> {
    const work = async () => {
      if (!(await this.#store.threads.beginRemoval(orgId, id, timestamp(), unusedSince))) return false
      await this.#finishRemoval(orgId, id)
      return true
    }
    return (await this.#alone(orgId, id, work).catch(passBusy)) === true
  }

  /**
   * A thread that the runner does not give stays, as if nobody had asked. Where it is not known whether the runner has
   * erased it, it is gone for everybody, and `settle` does the rest.
   */
  async #finishRemoval(orgId: string, id: string): Promise<void> {
    try {
      await this.#runner.storage.remove({ area: 'threads', org: orgId, name: id })
    } catch (error) {
      if (error instanceof Refusal && error.code === 'unavailable') return
      if (error instanceof Refusal) await this.#store.threads.settle(orgId, id)
      throw error
    }
    await this.#store.threads.remove(orgId, id)
  }

  /** Where it is not known whether there is a copy, its row stays as it is, for `settle`. */
  async #copy(from: ThreadRow, to: string): Promise<void> {
    const { orgId } = from
    try {
      const copied = await this.#runner.storage.fork(refOf(from), { area: 'threads', org: orgId, name: to })
      if (!copied) throw new Refusal('thread_exists', { thread: to })
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      if (error.code === 'thread_unknown') return // No run has made anything of it yet.
      if (error.code !== 'unavailable') await this.#store.threads.remove(orgId, to)
      throw error
    }
  }

  async #existing(caller: Caller, id: string): Promise<ThreadRow> {
    requireThreads(caller)
    checkThreadId('id', id)
    const row = await this.#store.threads.get(caller.orgId, id)
    if (row === undefined || row.state !== null) throw new Refusal('thread_unknown', { thread: id })
    return row
  }

  /** One thing at a time is done to a thread. */
  async #alone<T>(orgId: string, id: string, work: () => Promise<T>): Promise<T> {
    const key = `${orgId}/${id}`
    if (this.#underWay.has(key)) throw new Refusal('thread_busy', { thread: id })
    this.#underWay.add(key)
    try {
      return await work()
    } finally {
      this.#underWay.delete(key)
    }
  }
}

function requireThreads({ profile }: Caller): void {
  if (profile.storage.kind === 'none') throw new Refusal('threads_unavailable')
}

const refOf = ({ orgId, id }: ThreadRow): StorageRef => ({ area: 'threads', org: orgId, name: id })

const isBusy = ({ lockedUntil }: ThreadRow): boolean => lockedUntil !== null && lockedUntil >= timestamp()

const toView = (row: ThreadRow, sizeBytes: number): ThreadView => ({
  id: row.id,
  size_bytes: sizeBytes,
  created_at: row.createdAt,
  last_used_at: row.lastUsedAt,
  busy: isBusy(row),
})

/** A thread whose first run never got to it has no image. */
const noneYet =
  (quotaBytes: number) =>
  (error: unknown): StorageStatus => {
    if (!(error instanceof Refusal && error.code === 'thread_unknown')) throw error
    return { sizeBytes: 0, usedBytes: 0, quotaBytes, inodes: 0, inodesMax: 0, mounted: false }
  }

/** What is in use is looked at again later. */
function passBusy(error: unknown): undefined {
  if (error instanceof Refusal && error.code === 'thread_busy') return undefined
  throw error
}
