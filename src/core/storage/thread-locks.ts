import { BackgroundJob } from '../../base/background-job.ts'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Quota, RunThread } from '../../base/run.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Store } from '../../store/store.ts'
import { requireStorageRoom } from './storage-limit.ts'

/** The thread that a call names. */
export interface RequestedThread {
  id: string
  quota: Quota
  /** Profile of the caller, which sets the retention time. */
  profile: string
}

/**
 * Duration of a lease. After it, another run can take the lock of a front that died. The runner still does not release the
 * thread while a jail that uses it is alive.
 */
const leaseMs = 60_000
const renewEveryMs = 20_000

/** What holds threads besides runs, and gives one up while no call needs it. */
export interface IdleHolder {
  /** @param holderId as in the row of the thread. @returns whether it holds the thread no longer. */
  giveUp(holderId: string): Promise<boolean>
}

/**
 * Locks threads for runs and for sandboxes. A lock is stored in the row of the thread, with a lease and a fencing number. A run holds its
 * thread from before it is sent to the runner until its ending is known; its jail is dead by then.
 */
export class ThreadLocks {
  readonly #store: Store
  readonly #log: Log
  /** IDs of the runs of this front that can hold a thread. */
  readonly #held = new Set<string>()
  readonly #renewal: BackgroundJob
  /** Absent: runs are the only holders. */
  idleHolder: IdleHolder | undefined

  constructor(store: Store, log: Log) {
    this.#store = store
    this.#log = log
    this.#renewal = new BackgroundJob({
      everyMs: renewEveryMs,
      retryMaxMs: renewEveryMs,
      work: async () => {
        await store.threads.renew([...this.#held], leaseEnd())
        await store.threads.renewOfSandboxes(leaseEnd())
      },
      onFault: (error) => fault(error, log),
    })
  }

  /**
   * Checks early whether a thread is free, so that repeated calls for a busy thread write no rows. Only `lock` locks it.
   * @throws Refusal thread_busy if another run holds it.
   */
  async expectFree(orgId: string, { id }: RequestedThread): Promise<void> {
    const row = await this.#store.threads.get(orgId, id)
    const isFree = !(row?.lockedUntil && row.lockedUntil >= timestamp()) && !row?.state
    if (!isFree && !(await this.giveUp(orgId, id))) throw new Refusal('thread_busy', { thread: id })
  }

  /** Frees a thread from a sandbox that no call uses. @returns whether it did. */
  async giveUp(orgId: string, id: string): Promise<boolean> {
    const row = await this.#store.threads.get(orgId, id)
    const holder = row?.state === null ? row.lockedBy : null
    return holder !== null && holder !== undefined && (await this.idleHolder?.giveUp(holder)) === true
  }

  /** Does work that needs an unlocked thread, after freeing it if possible. @throws Refusal thread_busy and those of `work`. */
  async whenFree<T>(orgId: string, id: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      const isBusy = error instanceof Refusal && error.code === 'thread_busy'
      if (!isBusy || !(await this.giveUp(orgId, id))) throw error
      return work()
    }
  }

  /**
   * Returns the subject of a run: that of its thread, or that of the call if the thread has none.
   * @param asked the subject that the call names, or `null`.
   * @returns `isNew`: the thread does not exist or gets its subject, which must be durable before code writes to it.
   * @throws Refusal subject_conflict if the thread belongs to another subject; limit_reached if creating or enlarging it
   * would exceed the storage limit of its organization.
   */
  async subjectFor(
    orgId: string,
    { id, quota }: RequestedThread,
    asked: string | null,
  ): Promise<{ subject: string | null; isNew: boolean }> {
    const row = await this.#store.threads.get(orgId, id)
    await requireStorageRoom(this.#store, orgId, quota.bytes - (row?.quotaBytes ?? 0))
    const owner = row?.subject ?? null
    if (owner !== null && asked !== null && owner !== asked) throw new Refusal('subject_conflict', { thread: id })
    return { subject: owner ?? asked, isNew: row === undefined || (owner === null && asked !== null) }
  }

  /** Locks a thread for a run. @throws Refusal thread_busy if another run holds it. */
  async lock(
    { orgId, runId }: { orgId: string; runId: string },
    { id, quota, profile }: RequestedThread,
    subject: string | null,
  ): Promise<RunThread> {
    this.#held.add(runId)
    const asked = { orgId, id, runId, subject, profile, quotaBytes: quota.bytes }
    try {
      return { id, quota, fence: await this.#lock(asked) }
    } catch (error) {
      this.#held.delete(runId)
      throw error
    }
  }

  /**
   * Locks a thread for a sandbox. Its lease is renewed while its row says that the sandbox is not stopped.
   * @throws Refusal thread_busy while a run or another sandbox needs it; limit_reached.
   */
  async lockForSandbox(
    { orgId, sandboxId }: { orgId: string; sandboxId: string },
    { id, quota, profile }: RequestedThread,
  ): Promise<RunThread> {
    const { subject } = await this.subjectFor(orgId, { id, quota, profile }, null)
    const asked = { orgId, id, runId: sandboxId, subject, profile, quotaBytes: quota.bytes }
    return { id, quota, fence: await this.#lock(asked) }
  }

  #lock(asked: Parameters<Store['threads']['lock']>[0]): Promise<number> {
    return this.whenFree(asked.orgId, asked.id, async () => {
      const fence = await this.#store.threads.lock(asked, timestamp(), leaseEnd())
      if (fence === undefined) throw new Refusal('thread_busy', { thread: asked.id })
      return fence
    })
  }

  /** Adopts a run of an earlier front, with the thread that it may hold. */
  adopt(runId: string): void {
    this.#held.add(runId)
  }

  /** Unlocks the thread of a run that has ended. Never rejects; `freeEnded` repeats what failed. */
  async free(runId: string): Promise<void> {
    if (!this.#held.delete(runId)) return
    try {
      await this.#store.threads.free(runId, timestamp())
    } catch (error) {
      fault(error, this.#log)
    }
  }

  /** Unlocks the thread of a sandbox that has stopped. Never rejects; `freeEnded` repeats what failed. */
  async freeOfSandbox(sandboxId: string): Promise<void> {
    await this.#store.threads.free(sandboxId, timestamp()).catch((error: unknown) => fault(error, this.#log))
  }

  /** Unlocks the threads of all ended runs, for example of a front that was killed. */
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
