import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Runner, StorageRef, StorageStatus } from '../../runner/protocol/messages.ts'
import type { ThreadRow } from '../../store/storage-rows.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import { checkThreadId } from './files.ts'
import type { ThreadLocks } from './thread-locks.ts'

/** A thread as it is returned to clients. */
export interface ThreadView {
  id: string
  /** Disk space that it occupies, in bytes. */
  size_bytes: number
  created_at: string
  last_used_at: string
  /** Whether a run is using it. */
  busy: boolean
}

export interface InspectedThread extends ThreadView {
  /** Maximum and current size of its files. */
  quota_bytes: number
  used_bytes: number
}

/** The capability that each operation requires. */
export const threadNeeds = {
  list: 'threads.read',
  inspect: 'threads.read',
  fork: 'threads.write',
  remove: 'threads.write',
} as const

/** Maximum number of unused threads that one round removes. */
const removedAtOnce = 100
const dayMs = 86_400_000

/**
 * Manages threads, independent of the runs that use them. A row and its image are created and removed together: the row is
 * marked first, and `settle` completes or rolls back operations that a crash interrupted.
 */
export class Threads {
  readonly #store: Store
  readonly #runner: Runner
  readonly #locks: ThreadLocks
  /** Threads on which this front performs an operation; `settle` skips them. */
  readonly #underWay = new Set<string>()

  constructor(store: Store, runner: Runner, locks: ThreadLocks) {
    this.#locks = locks
    this.#store = store
    this.#runner = runner
  }

  /** Lists the threads of the caller's organization, by ID. @throws Refusal threads_unavailable, invalid_argument. */
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

  /** Returns a thread with its disk usage. @throws Refusal thread_unknown, threads_unavailable, unavailable. */
  async inspect(caller: Caller, id: string): Promise<InspectedThread> {
    const row = await this.#existing(caller, id)
    const { sizeBytes, usedBytes, quotaBytes } = await this.#runner.storage
      .inspect(refOf(row))
      .catch(noneYet(row.quotaBytes ?? 0))
    return { ...toView(row, sizeBytes), quota_bytes: row.quotaBytes ?? quotaBytes, used_bytes: usedBytes }
  }

  /** Deletes a thread with its files. @throws Refusal thread_unknown, thread_busy, threads_unavailable. */
  async remove(caller: Caller, id: string): Promise<void> {
    const { orgId } = await this.#existing(caller, id)
    await this.#locks.whenFree(orgId, id, () => this.#remove(orgId, id))
  }

  #remove(orgId: string, id: string): Promise<void> {
    return this.#alone(orgId, id, async () => {
      if (!(await this.#store.threads.beginRemoval(orgId, id, timestamp()))) {
        throw new Refusal('thread_busy', { thread: id })
      }
      await this.#store.sync()
      await this.#finishRemoval(orgId, id)
    })
  }

  /**
   * Copies a thread with its files. The copy belongs to the same subject.
   * @throws Refusal thread_unknown, thread_exists, thread_busy (a run or a file transfer uses it), invalid_argument,
   * limit_reached, threads_unavailable, unavailable.
   */
  fork(caller: Caller, id: string, to: string): Promise<ThreadView> {
    return this.#locks.whenFree(caller.orgId, id, () => this.#fork(caller, id, to))
  }

  async #fork(caller: Caller, id: string, to: string): Promise<ThreadView> {
    const from = await this.#existing(caller, id)
    checkThreadId('to', to)
    if (to === id) throw new Refusal('thread_exists', { thread: to })
    if (isBusy(from)) throw new Refusal('thread_busy', { thread: id })
    const at = timestamp()
    const { orgId, subject, profile, quotaBytes } = from
    return this.#alone(orgId, to, async () => {
      const row = { orgId, id: to, createdAt: at, lastUsedAt: at, subject, profile, quotaBytes }
      if (!(await this.#store.threads.beginMaking(row))) throw new Refusal('thread_exists', { thread: to })
      await this.#store.sync()
      await this.#copy(from, to)
      await this.#store.threads.settle(orgId, to)
      await this.#store.sync()
      return this.inspect(caller, to)
    })
  }

  /**
   * Completes interrupted removals, and removes incomplete copies, which were not returned to a client.
   * @throws Refusal unavailable while no runner is connected; the next call retries.
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
   * Removes threads that were unused for longer than the retention time of their profile.
   * @param daysOf returns the retention time of a profile, in days; `null` for no limit.
   * @returns the number of removed threads.
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
   * Erases a thread that is marked as being removed. If the runner refuses, the mark is cleared. If it is unknown whether
   * the runner has erased the thread, the mark stays, and `settle` completes the removal.
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

  /** Copies the image of a thread. If it is unknown whether the copy exists, its row stays marked for `settle`. */
  async #copy(from: ThreadRow, to: string): Promise<void> {
    const { orgId } = from
    try {
      const copied = await this.#runner.storage.fork(refOf(from), { area: 'threads', org: orgId, name: to })
      if (!copied) throw new Refusal('thread_exists', { thread: to })
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      if (error.code === 'thread_unknown') return // No run has used it yet, so there is no image.
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

  /** Runs an operation on a thread. @throws Refusal thread_busy if another one is in progress. */
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

export const toView = (row: ThreadRow, sizeBytes: number): ThreadView => ({
  id: row.id,
  size_bytes: sizeBytes,
  created_at: row.createdAt,
  last_used_at: row.lastUsedAt,
  busy: isBusy(row),
})

/** Provides a default for an unused thread, which has no image. */
const noneYet =
  (quotaBytes: number) =>
  (error: unknown): StorageStatus => {
    if (!(error instanceof Refusal && error.code === 'thread_unknown')) throw error
    return { sizeBytes: 0, usedBytes: 0, quotaBytes, inodes: 0, inodesMax: 0, mounted: false }
  }

/** Skips a busy thread. The next round retries it. */
function passBusy(error: unknown): undefined {
  if (error instanceof Refusal && error.code === 'thread_busy') return undefined
  throw error
}
