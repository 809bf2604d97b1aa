import { BackgroundJob } from '../../base/background-job.ts'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Quota, RunThread } from '../../base/run.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Store } from '../../store/store.ts'
import { requireStorageRoom } from './storage-limit.ts'

/** A thread that a call asks for. */
export interface AskedThread {
  id: string
  quota: Quota
  /** Of the caller: how long it is kept is said there. */
  profile: string
}

/**
 * A lock whose front is gone is anybody's after this. The runner has the last word: it gives no thread away while a
 * jail that has it lives.
 */
const leaseMs = 60_000
const renewEveryMs = 20_000

/**
 * Who has which thread: a lock in its row, with a lease and a number that grows. A run has its thread from before it is
 * handed to the runner until its ending is known, which is when its jail is dead.
 */
export class ThreadLocks {
  readonly #store: Store
  readonly #log: Log
  /** Runs of this front that may have a thread. */
  readonly #held = new Set<string>()
  readonly #renewal: BackgroundJob

  constructor(store: Store, log: Log) {
    this.#store = store
    this.#log = log
    this.#renewal = new BackgroundJob({
      everyMs: renewEveryMs,
      retryMaxMs: renewEveryMs,
      work: () => store.threads.renew([...this.#held], leaseEnd()),
      onFault: (error) => fault(error, log),
    })
  }

  /**
   * Looks ahead, so that a call that is made again and again until the thread is free leaves no row each time; `lock`
   * decides.
   * @throws Refusal thread_busy when another run has it now.
   */
  async expectFree(orgId: string, { id }: AskedThread): Promise<void> {
    const row = await this.#store.threads.get(orgId, id)
    if ((row?.lockedUntil && row.lockedUntil >= timestamp()) || row?.state)
      throw new Refusal('thread_busy', { thread: id })
  }

  /**
   * Whom a run on this thread is for: once a thread belongs to a subject, all that runs on it does.
   * @param asked what the call says; `null` where it says nothing.
   * @throws Refusal subject_conflict when the thread belongs to another; limit_reached when it would be made, or grow,
   * beyond what its org may keep.
   */
  async subjectFor(orgId: string, { id, quota }: AskedThread, asked: string | null): Promise<string | null> {
    const row = await this.#store.threads.get(orgId, id)
    await requireStorageRoom(this.#store, orgId, quota.bytes - (row?.quotaBytes ?? 0))
    const owner = row?.subject ?? null
    if (owner !== null && asked !== null && owner !== asked) throw new Refusal('subject_conflict', { thread: id })
    return owner ?? asked
  }

  /** @throws Refusal thread_busy when another run has it. */
  async lock(
    { orgId, runId }: { orgId: string; runId: string },
    { id, quota, profile }: AskedThread,
    subject: string | null,
  ): Promise<RunThread> {
    this.#held.add(runId)
    const asked = { orgId, id, runId, subject, profile, quotaBytes: quota.bytes }
    const fence = await this.#store.threads.lock(asked, timestamp(), leaseEnd())
    if (fence !== undefined) return { id, fence, quota }
    this.#held.delete(runId)
    throw new Refusal('thread_busy', { thread: id })
  }

  /** Takes over a run of an earlier front, with the thread that it may have. */
  adopt(runId: string): void {
    this.#held.add(runId)
  }

  /** To be called when the run has ended. Never rejects: what could not be freed is freed by `freeEnded`. */
  async free(runId: string): Promise<void> {
    if (!this.#held.delete(runId)) return
    try {
      await this.#store.threads.free(runId, timestamp())
    } catch (error) {
      fault(error, this.#log)
    }
  }

  /** Frees what a front that was killed left between the ending of a run and its lock. */
  freeEnded(): Promise<void> {
    return this.#store.threads.freeEnded()
  }

  /** Starts renewing the leases of the locks that are held. */
  start(): void {
    this.#renewal.start()
  }

  stop(): Promise<void> {
    return this.#renewal.stop()
  }
}

const leaseEnd = (): string => new Date(Date.now() + leaseMs).toISOString()
