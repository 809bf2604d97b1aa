/**
 * The interface of the database. It is implemented with SQLite. Every method is async, so that other databases can
 * implement it too. Times are ISO 8601 strings in UTC. The interface does not depend on HTTP, MCP or sandboxes.
 */
import type { DeliveryMode } from '../base/execution-status.ts'
import type { Ending, Language, RunResult, ShownImage } from '../base/run.ts'
import type { AdminTokenRow, AfterRow, DatabaseSize, StoredProfileRow, UsageRow } from './admin-rows.ts'
import type { AdminStore, Rows } from './admin-store.ts'
import type { AuditEntry, AuditFilter, AuditLine, ErasedRows } from './audit-rows.ts'
import type { NounRows } from './nouns.ts'
import type { Reseal } from './reseal.ts'
import type { DeliveryRows, HistoryRows, OrgSettingsRows, RunExtras } from './run-history.ts'
import type { Slice } from './slice.ts'
import type { ThreadRow, ThreadRows, VolumeRows } from './storage-rows.ts'
import type { UpstreamRows, UpstreamSearch, UpstreamUsageRows } from './upstream-rows.ts'

export interface OrgRow {
  id: string
  name: string
  createdAt: string
}

export interface KeyRow {
  id: string
  orgId: string
  name: string
  /** Name of the profile that this key is bound to. */
  profile: string
  /** SHA-256 of the secret, hex; `null` for the keyless development caller. */
  secretHash: string | null
  /** First characters of the secret, shown in lists; `null` for a key without one. */
  prefix: string | null
  createdAt: string
  /** Time after which requests are rejected and running executions are cancelled; `null` for never. */
  expiresAt: string | null
  /** Variables of its runs, sealed; `null` for none. */
  env: string | null
  /** Names of the tools that it may use, as JSON; `null` for all that its profile offers. */
  tools: string | null
  /** Its limits at upstreams, as JSON; `null` for no further limits. */
  upstreamPolicy: string | null
  /** Namespaces of sandboxes that it may use, as JSON; `null` for all. */
  namespaces: string | null
  /** SHA-256 of the secret before the last rotation, which stays valid until `previousUntil`. */
  previousHash: string | null
  previousUntil: string | null
  revokedAt: string | null
  /** Time at which all runs of a revoked key had ended; `null` before. */
  retiredAt: string | null
}

/** A revision of a profile. Rows of runs refer to the revision that they ran with. */
export interface ProfileRow {
  name: string
  revision: string
  /** The whole profile as JSON, without the values of variables. */
  definition: string
  createdAt: string
}

export interface RunRow {
  id: string
  orgId: string
  keyId: string
  profile: string
  profileRevision: string
  language: Language
  /** SHA-256 of the code, hex. */
  codeHash: string
  codeBytes: number
  /** Metadata of the caller, as JSON; `null` for none. */
  metadata: string | null
  /** The person or case that the run belongs to, as the client names it. */
  subject: string | null
  /** Names of the variables of the call, as JSON. */
  envNames: string
  /** ID of the runner process that executes the run. */
  runnerId: string
  epoch: number
  detached: boolean
  /** Whether its output is stored when it ends, for later requests. */
  kept: boolean
  /** Whether its output is stored as long as this row. */
  keepsOutput: boolean
  threadId: string | null
  deliveryMode: DeliveryMode
  createdAt: string
  finishedAt: string | null
  ending: Ending | null
  /** All measurements; `null` until it has finished, and if nothing could be measured. */
  result: RunResult | null
}

/** The part of a stream that is stored after the run has ended. */
export interface KeptStream {
  head: Uint8Array
  /** Number of bytes between head and tail that were not stored. */
  omittedBytes: number
  tail: Uint8Array
}

export interface KeptOutput {
  stdout: KeptStream
  stderr: KeptStream
  images: readonly ShownImage[]
  /** The order of all output (`src/core/runs/output-order.ts`); absent if it was not stored. */
  order?: Uint8Array
}

/** Ensures that a request with an idempotency key is executed at most once. */
export interface IdempotencyRow {
  orgId: string
  keyId: string
  /** Chosen by the caller. */
  idempotencyKey: string
  /** SHA-256 of the request, hex: the same key cannot be used for two requests. */
  requestHash: string
  runId: string
  expiresAt: string
}

export interface TaskRow {
  id: string
  orgId: string
  keyId: string
  /** The run that the outcome comes from; `null` for other work of the front that created the task. */
  runId: string | null
  /** The front process that created it. */
  frontId: string
  status: 'working' | 'completed' | 'failed' | 'cancelled'
  /** The result of a completed task or the error of a failed one, as JSON. */
  outcome: string | null
  createdAt: string
  updatedAt: string
  expiresAt: string
}

export interface Store extends NounRows {
  size(): Promise<DatabaseSize>
  /**
   * Returns a text that stays the same only while no process writes to the database. Takes microseconds.
   * @returns `undefined` if it is not known now.
   */
  version(): string | undefined
  /** Runs `work` and writes the audit line in one durable transaction; nothing is written when `work` throws. */
  audited<Result>(line: AuditEntry, work: (rows: Rows) => Promise<Result>): Promise<Result>
  /**
   * Runs several administrative actions in one durable transaction; nothing is written when `work` throws. The connection
   * is held until then, so `work` must use nothing but the rows that it receives.
   */
  together<Result>(work: (store: AdminStore) => Promise<Result>): Promise<Result>
  /** Replaces every sealed value, in one durable transaction. `null` stays `null`. */
  reseal(again: Reseal): Promise<void>
  /**
   * Makes all earlier commits survive a power cut. Ordinary commits are synced to disk within half a minute; this method is
   * called before a result that relies on them is sent, or is written elsewhere.
   */
  sync(): Promise<void>
  /** Why the disk does not accept writes, as of the last write or check; `undefined` if it does. */
  readonly diskProblem: string | undefined
  /** Checks whether the disk accepts writes, and updates `diskProblem`. */
  checkDisk(): Promise<void>
  orgs: {
    /** Creates the organization, unless one with this ID exists. */
    ensure(org: OrgRow): Promise<void>
    /** Returns the organization with this name, and creates it if it does not exist. */
    ensureNamed(org: OrgRow): Promise<OrgRow>
    get(id: string): Promise<OrgRow | undefined>
    /** Lists all organizations by name. */
    list(): Promise<OrgRow[]>
    page(afterName: string, limit: number): Promise<OrgRow[]>
    /** Inserts an organization. @returns `false` if another organization has the name. */
    create(org: OrgRow): Promise<boolean>
    /** Renames an organization. @returns whether it exists; `taken` if another one has the name. */
    rename(id: string, name: string): Promise<boolean | 'taken'>
  }
  keys: {
    ensure(key: KeyRow): Promise<void>
    get(id: string): Promise<KeyRow | undefined>
    findBySecretHash(hash: string): Promise<KeyRow | undefined>
    list(orgId: string): Promise<KeyRow[]>
    /** Lists the keys with a secret, oldest first. */
    page(orgId: string, after: AfterRow, limit: number): Promise<KeyRow[]>
    /** Finds a key by the hash of its secret before the last rotation. */
    findByPreviousHash(hash: string): Promise<KeyRow | undefined>
    /** Changes a key. @returns whether it exists and is not revoked. */
    update(
      id: string,
      changes: Partial<Pick<KeyRow, 'name' | 'profile' | 'expiresAt' | 'env' | 'tools' | 'namespaces'>>,
    ): Promise<boolean>
    /** Replaces the secret of a key. @returns whether it exists and is not revoked. */
    rotate(
      id: string,
      secret: Pick<KeyRow, 'secretHash' | 'prefix' | 'previousHash' | 'previousUntil'>,
    ): Promise<boolean>
    /** Revokes every key that has expired. */
    expire(now: string): Promise<void>
    /** Lists the keys that have variables. */
    withEnv(): Promise<KeyRow[]>
    /** Revokes a key. @returns whether this call revoked it. */
    revoke(id: string, at: string): Promise<boolean>
    /** Lists the revoked keys that may still have unfinished runs. */
    notRetired(): Promise<KeyRow[]>
    setRetired(id: string, at: string): Promise<void>
  }
  profiles: {
    ensure(profile: ProfileRow): Promise<void>
    get(name: string, revision: string): Promise<ProfileRow | undefined>
  }
  storedProfiles: {
    /** Inserts a profile. @returns `false` if the organization already has a profile with this name. */
    create(profile: StoredProfileRow): Promise<boolean>
    get(orgId: string, name: string): Promise<StoredProfileRow | undefined>
    page(orgId: string, afterName: string, limit: number): Promise<StoredProfileRow[]>
    all(): Promise<StoredProfileRow[]>
    /** Replaces the settings of a profile. @returns whether it exists. */
    update(orgId: string, name: string, settings: string, updatedAt: string): Promise<boolean>
    /** Removes a profile that no valid key is bound to. */
    remove(orgId: string, name: string): Promise<'removed' | 'unknown' | 'in_use'>
  }
  limits: {
    /** Returns the limits as JSON. @param ownerId ID of an organization or a key. */
    get(ownerId: string): Promise<string | undefined>
    set(ownerId: string, amounts: string): Promise<void>
  }
  usage: {
    /** Lists the usage by day and key. @param untilDay exclusive. */
    list(orgId: string, fromDay: string, untilDay: string): Promise<UsageRow[]>
    /** Adds to the number of refused calls of keys, in one transaction. */
    addRefused(counts: readonly Pick<UsageRow, 'orgId' | 'day' | 'keyId' | 'refused'>[]): Promise<void>
  }
  adminTokens: {
    create(token: AdminTokenRow): Promise<void>
    findBySecretHash(hash: string): Promise<AdminTokenRow | undefined>
    get(id: string): Promise<AdminTokenRow | undefined>
    /** Lists the tokens, oldest first. */
    page(after: AfterRow, limit: number): Promise<AdminTokenRow[]>
    /** Revokes a token. @returns whether this call revoked it. */
    revoke(id: string, at: string): Promise<boolean>
  }
  threads: ThreadRows
  volumes: VolumeRows
  upstreams: UpstreamRows
  upstreamUsage: UpstreamUsageRows
  upstreamSearch: UpstreamSearch
  runs: {
    /** Inserts a run. With a delivery, the transaction is durable, since the client relies on the webhook. */
    begin(run: Omit<RunRow, 'finishedAt' | 'ending' | 'result'>, beside?: RunExtras): Promise<void>
    /**
     * Begins a run with an idempotency record in one durable transaction. Replaces a record that has expired by
     * `createdAt` of the run.
     * @returns the existing record, if there is one; in this case nothing was written.
     */
    beginOnce(
      run: Omit<RunRow, 'finishedAt' | 'ending' | 'result'>,
      record: IdempotencyRow,
      beside?: RunExtras,
    ): Promise<IdempotencyRow | undefined>
    /** Returns the record of an idempotency key that has not expired by `at`. */
    idempotencyRecord(
      key: Pick<IdempotencyRow, 'orgId' | 'keyId' | 'idempotencyKey'>,
      at: string,
    ): Promise<IdempotencyRow | undefined>
    /** Deletes the idempotency record of a run that was never executed. */
    deleteIdempotencyRecord(runId: string): Promise<void>
    /**
     * Deletes a run that was refused and never executed, with its idempotency record, its delivery and a thread that it
     * created. Writes no audit line.
     */
    discard(id: string): Promise<void>
    /**
     * Writes the ending of a run and, if it is stored, its output. A finished run is not changed.
     * @param deliveryDueAt time from which its webhook is delivered; `finishedAt` by default.
     * @returns the run, if this call wrote its ending.
     */
    finish(
      id: string,
      finishedAt: string,
      ending: Ending,
      result: RunResult | null,
      output?: KeptOutput,
      deliveryDueAt?: string,
    ): Promise<RunRow | undefined>
    /** Returns the output of an ended run; `undefined` if it is not stored. */
    output(id: string): Promise<KeptOutput | undefined>
    get(id: string): Promise<RunRow | undefined>
    /** Lists the runs without an ending. */
    unfinished(): Promise<RunRow[]>
  }
  history: HistoryRows
  orgSettings: OrgSettingsRows
  /**
   * The outbox of webhooks. A row is written with its run and becomes due in the transaction that writes the ending.
   */
  deliveries: DeliveryRows
  tasks: {
    /** Inserts a task in a durable transaction. */
    create(task: TaskRow): Promise<void>
    get(id: string): Promise<TaskRow | undefined>
    /** Ends a task with the status `working`. @returns whether this call ended it. */
    settle(
      id: string,
      updatedAt: string,
      status: Exclude<TaskRow['status'], 'working'>,
      outcome: string | null,
    ): Promise<boolean>
  }
  /** Lines are only appended; each is chained to all before it (`audit-chain.ts`). Every run that ends adds one. */
  audit: {
    /** Appends a line. @returns its number. */
    append(entry: AuditEntry): Promise<number>
    /** Returns the number and the hash of the newest line. */
    head(): Promise<{ seq: number; hash: string }>
    /** Lists matching lines, oldest first. */
    list(filter: AuditFilter, afterSeq: number, limit: number): Promise<Slice<AuditLine, number>>
    /** Lists matching lines, newest first. */
    newest(filter: AuditFilter, beforeSeq: number, limit: number): Promise<Slice<AuditLine, number>>
  }
  subjects: {
    /** Returns whether a run of this subject has no ending yet. */
    isActive(orgId: string, subject: string): Promise<boolean>
    /** Lists the runs of a subject, oldest first. */
    runs(orgId: string, subject: string, after: { createdAt: string; id: string }, limit: number): Promise<RunRow[]>
    threads(orgId: string, subject: string): Promise<ThreadRow[]>
    /**
     * Erases all data of a subject in one transaction: its runs with their output, and the personal data of audit lines.
     * Writes an audit line about the erasure. The data is also overwritten in the database files.
     * @returns the number of erased rows; `in_use` while one of its runs is active or one of its threads exists.
     */
    erase(orgId: string, subject: string, line: (erased: ErasedRows) => AuditEntry): Promise<ErasedRows | 'in_use'>
  }
  secrets: {
    /** Returns the secret with this name. Stores `value` if it does not exist. */
    ensure(name: string, value: string): Promise<string>
    set(name: string, value: string): Promise<void>
    all(): Promise<{ name: string; value: string }[]>
  }
  /**
   * Deletes tasks and idempotency records that expired before `now`, and the output of runs that ended before
   * `endedBefore`.
   */
  forget(now: string, endedBefore: string): Promise<void>
  close(): Promise<void>
}
