/**
 * Rows of threads and volumes. Their files belong to the runner; a row and its image are created and removed together.
 */

export interface ThreadRow {
  orgId: string
  id: string
  createdAt: string
  lastUsedAt: string
  /** The run or sandbox that holds the thread, its lease and its fencing number. */
  lockedBy: string | null
  lockedUntil: string | null
  fence: number
  /** The person or case that it belongs to, as the client names it. */
  subject: string | null
  /** An operation in progress. It locks the thread, and is completed or rolled back after a crash. */
  state: 'making' | 'removing' | null
  /** Profile of its last run; `null` if none was recorded. */
  profile: string | null
  /** Minimum size of its image; `null` if none was recorded. */
  quotaBytes: number | null
}

export interface VolumeRow {
  /** Never changes and is never reused; the runner identifies the volume by it. */
  id: string
  orgId: string
  /** Directory of its mount point: `/volumes/<slug>`. */
  slug: string
  /** For display only; can be empty. */
  name: string
  quotaBytes: number
  quotaFiles: number
  createdAt: string
  /** Time at which its removal was requested; after it no run can mount the volume. */
  removingAt: string | null
}

export interface ThreadRows {
  get(orgId: string, id: string): Promise<ThreadRow | undefined>
  /**
   * Locks a thread for a run, in one statement. Creates the thread if it does not exist. A thread without a subject gets
   * the subject of the run.
   * @param until time at which the lease expires, so that another run can take the lock.
   * @returns its fencing number, higher than all previous ones; `undefined` if another run holds the lock, if the thread belongs
   * to another subject, or if it is being created or removed.
   */
  lock(
    asked: {
      orgId: string
      id: string
      runId: string
      subject: string | null
      profile?: string
      quotaBytes?: number
    },
    at: string,
    until: string,
  ): Promise<number | undefined>
  /**
   * Creates the thread, or updates the time of its last use, without a run.
   * @returns `false` while it is being created or removed.
   */
  use(asked: { orgId: string; id: string; profile: string; quotaBytes: number }, at: string): Promise<boolean>
  /** Renews the leases that these runs hold. */
  renew(runIds: readonly string[], until: string): Promise<void>
  /** Renews the leases that sandboxes hold which are not stopped. */
  renewOfSandboxes(until: string): Promise<void>
  /** Unlocks the thread that a run or sandbox holds, if any, and updates the time of its last use. */
  free(runId: string, at: string): Promise<void>
  /** Unlocks every thread whose run has ended or whose sandbox is stopped. */
  freeEnded(): Promise<void>
  /** Lists the existing threads by ID. */
  page(orgId: string, afterId: string, limit: number): Promise<ThreadRow[]>
  /** Inserts a thread that is being created. @returns `false` if a thread with this ID exists. */
  beginMaking(row: Omit<ThreadRow, 'lockedBy' | 'lockedUntil' | 'fence' | 'state'>): Promise<boolean>
  /**
   * Marks a thread as being removed, so that no run can lock it.
   * @param unusedSince marks it only if it was not used since then.
   * @returns `false` if it does not exist, is locked, or is being created or removed.
   */
  beginRemoval(orgId: string, id: string, at: string, unusedSince?: string): Promise<boolean>
  /** Clears the state: the thread was created, or its removal was cancelled. */
  settle(orgId: string, id: string): Promise<void>
  /** Deletes the row of a thread that was being created or removed. */
  remove(orgId: string, id: string): Promise<void>
  /** Lists the threads that are being created or removed. */
  unsettled(): Promise<ThreadRow[]>
  /** Lists the pairs of organization and last profile that threads have. */
  uses(): Promise<{ orgId: string; profile: string | null }[]>
  /** Lists the unlocked threads of such a pair that were not used since a time. */
  idle(
    use: { orgId: string; profile: string | null },
    at: string,
    unusedSince: string,
    limit: number,
  ): Promise<ThreadRow[]>
  /** Returns the sum of the quotas of the threads of an organization. */
  quotaBytes(orgId: string): Promise<number>
}

export interface VolumeRows {
  /** Inserts a volume. @returns `false` if the organization already has a volume with this slug. */
  create(volume: VolumeRow): Promise<boolean>
  /** Returns the volumes with these slugs, except those that are being removed. */
  ofSlugs(orgId: string, slugs: readonly string[]): Promise<VolumeRow[]>
  get(orgId: string, slug: string): Promise<VolumeRow | undefined>
  /** Lists volumes by slug, including those that are being removed. */
  page(orgId: string, afterSlug: string, limit: number): Promise<VolumeRow[]>
  /** Changes a volume. @returns `taken` if another volume of the organization has the slug; `false` if it does not exist. */
  update(
    id: string,
    changes: Partial<Pick<VolumeRow, 'slug' | 'name' | 'quotaBytes' | 'quotaFiles'>>,
  ): Promise<boolean | 'taken'>
  /** Requests the removal of a volume. @param at `null` cancels it. @returns whether this call changed the row. */
  setRemoving(id: string, at: string | null): Promise<boolean>
  /** Deletes the row of a volume that is being removed. */
  remove(id: string): Promise<void>
  removing(): Promise<VolumeRow[]>
  /** Returns the sum of the quotas of the volumes of an organization. */
  quotaBytes(orgId: string): Promise<number>
}
