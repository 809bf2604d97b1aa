/**
 * Rows of threads and volumes. Their files belong to the runner; a row and its image are created and removed together.
 */

export interface ThreadRow {
  orgId: string
  id: string
  createdAt: string
  lastUsedAt: string
  /** The run that holds the thread, its lease and its fencing number. */
  lockedBy: string | null
  lockedUntil: string | null
  fence: number
  /** The person or case of the client's that it belongs to. */
  subject: string | null
  /** What is being done to it by no run; nobody gets it meanwhile, and it is finished or undone after a crash. */
  state: 'making' | 'removing' | null
  /** Of its last run; `null` where none ran since that is kept. */
  profile: string | null
  /** What it may hold at least; `null` likewise. */
  quotaBytes: number | null
}

export interface VolumeRow {
  /** Stays, and is never used again: the runner knows it by this. */
  id: string
  orgId: string
  /** Where it is mounted: `/volumes/<slug>`. */
  slug: string
  /** For people alone; may be empty. */
  name: string
  quotaBytes: number
  quotaFiles: number
  createdAt: string
  /** Since when it is on its way out: no run gets it any more. */
  removingAt: string | null
}

export interface ThreadRows {
  get(orgId: string, id: string): Promise<ThreadRow | undefined>
  /**
   * Gives a thread to a run until a time, in one statement, unless another has it and that one's time is not over;
   * makes the thread when there is none. A thread that belongs to nobody then belongs to the subject; one
   * that belongs to another is not given.
   * @returns its fencing number, higher than any before; `undefined` when another has it, or belongs to another, or it
   * is being made or removed.
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
   * Makes the thread, or counts another use of it, by no run.
   * @returns false while it is being made or removed.
   */
  use(asked: { orgId: string; id: string; profile: string; quotaBytes: number }, at: string): Promise<boolean>
  /** Prolongs what these runs have. */
  renew(runIds: readonly string[], until: string): Promise<void>
  /** Frees the thread that a run has, if it has one; it was used until now. */
  free(runId: string, at: string): Promise<void>
  /** Frees every thread whose run has its ending. */
  freeEnded(): Promise<void>
  /** Those that are there, by id. */
  page(orgId: string, afterId: string, limit: number): Promise<ThreadRow[]>
  /** Writes a thread that is being made. @returns false when there is one of this id. */
  beginMaking(row: Omit<ThreadRow, 'lockedBy' | 'lockedUntil' | 'fence' | 'state'>): Promise<boolean>
  /**
   * Takes a thread out of everybody's hands.
   * @param unusedSince only when it was not used since then.
   * @returns false when there is none, or a run has it, or it is being made or removed.
   */
  beginRemoval(orgId: string, id: string, at: string, unusedSince?: string): Promise<boolean>
  /** What was being made is there; what was being removed stays. */
  settle(orgId: string, id: string): Promise<void>
  /** Deletes the row of what was being made or removed. */
  remove(orgId: string, id: string): Promise<void>
  /** Those that are being made or removed. */
  unsettled(): Promise<ThreadRow[]>
  /** With which profiles the threads of which orgs were used last. */
  uses(): Promise<{ orgId: string; profile: string | null }[]>
  /** Those of one such use that nobody has and that were not used since. */
  idle(
    use: { orgId: string; profile: string | null },
    at: string,
    unusedSince: string,
    limit: number,
  ): Promise<ThreadRow[]>
  /** Sum of what the threads of an org may hold. */
  quotaBytes(orgId: string): Promise<number>
}

export interface VolumeRows {
  /** @returns false when the org has one with this slug. */
  create(volume: VolumeRow): Promise<boolean>
  /** Those of these slugs that are not being removed. */
  ofSlugs(orgId: string, slugs: readonly string[]): Promise<VolumeRow[]>
  get(orgId: string, slug: string): Promise<VolumeRow | undefined>
  /** By slug; those that are being removed among them. */
  page(orgId: string, afterSlug: string, limit: number): Promise<VolumeRow[]>
  /** @returns `taken` when another of the org has that slug; false when there is none of this id. */
  update(
    id: string,
    changes: Partial<Pick<VolumeRow, 'slug' | 'name' | 'quotaBytes' | 'quotaFiles'>>,
  ): Promise<boolean | 'taken'>
  /** @param at `null`: it stays. @returns whether this call changed it. */
  setRemoving(id: string, at: string | null): Promise<boolean>
  /** Deletes the row of one that is being removed. */
  remove(id: string): Promise<void>
  removing(): Promise<VolumeRow[]>
  /** Sum of what the volumes of an org may hold. */
  quotaBytes(orgId: string): Promise<number>
}
