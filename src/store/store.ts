/**
 * The rows of the product. Every method is async, whatever the database: SQLite now, PostgreSQL by the same contract.
 * Times are ISO 8601 strings in UTC. Nothing here knows HTTP, MCP or a sandbox.
 */

import type { DeliveryMode } from '../base/execution-status.ts'
import type { Ending, Language, RunResult, ShownImage } from '../base/run.ts'
import type { AdminTokenRow, AfterRow, StoredProfileRow, UsageRow } from './admin-rows.ts'
import type { AuditEntry, AuditFilter, AuditLine, ErasedRows } from './audit-rows.ts'
import type { NounRows } from './nouns.ts'
import type { DeliveryRows, HistoryRows, OrgSettingsRows, RunExtras } from './run-history.ts'
import type { Slice } from './slice.ts'
import type { ThreadRow, ThreadRows, VolumeRows } from './storage-rows.ts'
import type { UpstreamRow, UpstreamRows, UpstreamUsageRows } from './upstream-rows.ts'

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
  /** After it, requests are rejected and running executions are cancelled. */
  expiresAt: string | null
  /** Variables of its runs, sealed; `null` for none. */
  env: string | null
  /** Names of the tools that it may use, as JSON; `null` for all that its profile offers. */
  tools: string | null
  /** Of the secret before the last rotation, which stays valid for a while. */
  previousHash: string | null
  previousUntil: string | null
  revokedAt: string | null
  /** When all runs of a revoked key had ended. */
  retiredAt: string | null
}

/** A profile as it was when its revision first ran, so that rows of runs can still be explained later. */
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
  /** The runner process that has the run. */
  runnerId: string
  epoch: number
  detached: boolean
  /** Its output is kept when it ends, for later requests. */
  kept: boolean
  /** Its output is kept for as long as this row is. */
  keepsOutput: boolean
  threadId: string | null
  deliveryMode: DeliveryMode
  createdAt: string
  finishedAt: string | null
  ending: Ending | null
  /** All measurements; `null` until it has finished, and if nothing could be measured. */
  result: RunResult | null
}

/** The part of a stream that is kept after the run has ended. */
export interface KeptStream {
  head: Uint8Array
  /** Bytes between head and tail that were not kept. */
  omittedBytes: number
  tail: Uint8Array
}

export interface KeptOutput {
  stdout: KeptStream
  stderr: KeptStream
  images: readonly ShownImage[]
  /** The order of all output (`core/runs/output-order.ts`); absent if it was not kept. */
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

/** The rows that one administrative action can change, in the transaction of its audit line. */
export type Rows = Pick<
  Store,
  | 'orgs'
  | 'keys'
  | 'storedProfiles'
  | 'limits'
  | 'adminTokens'
  | 'orgSettings'
  | 'secrets'
  | 'volumes'
  | 'upstreams'
  | keyof NounRows
>

export interface Store extends NounRows {
  /** Runs `work` and writes the audit line in one durable transaction; nothing is written when `work` throws. */
  audited<Result>(line: AuditEntry, work: (rows: Rows) => Promise<Result>): Promise<Result>
  /** Replaces every sealed value, in one durable transaction. `null` stays `null`. */
  reseal(again: {
    secret(row: { name: string; value: string }): string
    env(row: KeyRow): string | null
    profile(row: StoredProfileRow): string
    upstream(row: UpstreamRow): string
  }): Promise<void>
  /**
   * Resolves when everything that was committed before survives a power cut. Ordinary commits reach the disk within half
   * a minute; this is called before something that relies on them is sent out, or is written elsewhere.
   */
  sync(): Promise<void>
  /** Why the disk does not accept writes now, as the last attempt showed; `undefined` while it does. */
  readonly diskProblem: string | undefined
  /** Looks whether the disk accepts writes; see `diskProblem`. */
  checkDisk(): Promise<void>
  orgs: {
    /** Creates the organization, unless one with this id exists. */
    ensure(org: OrgRow): Promise<void>
    /** Returns the organization with this name, and creates it if it does not exist. */
    ensureNamed(org: OrgRow): Promise<OrgRow>
    get(id: string): Promise<OrgRow | undefined>
    /** By name. */
    list(): Promise<OrgRow[]>
    page(afterName: string, limit: number): Promise<OrgRow[]>
    /** @returns `false` when another organization has the name. */
    create(org: OrgRow): Promise<boolean>
    /** @returns whether the organization exists; `taken` when another has the name. */
    rename(id: string, name: string): Promise<boolean | 'taken'>
  }
  keys: {
    ensure(key: KeyRow): Promise<void>
    get(id: string): Promise<KeyRow | undefined>
    findBySecretHash(hash: string): Promise<KeyRow | undefined>
    list(orgId: string): Promise<KeyRow[]>
    /** Keys with a secret, oldest first. */
    page(orgId: string, after: AfterRow, limit: number): Promise<KeyRow[]>
    /** Finds a key by its secret before the last rotation. */
    findByPreviousHash(hash: string): Promise<KeyRow | undefined>
    /** @returns whether the key exists and is not revoked. */
    update(
      id: string,
      changes: Partial<Pick<KeyRow, 'name' | 'profile' | 'expiresAt' | 'env' | 'tools'>>,
    ): Promise<boolean>
    /** Replaces the secret of a key. @returns whether the key exists and is not revoked. */
    rotate(
      id: string,
      secret: Pick<KeyRow, 'secretHash' | 'prefix' | 'previousHash' | 'previousUntil'>,
    ): Promise<boolean>
    /** Revokes every key that has expired. */
    expire(now: string): Promise<void>
    /** Every key that has variables. */
    withEnv(): Promise<KeyRow[]>
    /** @returns whether this call revoked the key. */
    revoke(id: string, at: string): Promise<boolean>
    /** Revoked keys that may still have unfinished runs. */
    notRetired(): Promise<KeyRow[]>
    setRetired(id: string, at: string): Promise<void>
  }
  profiles: {
    ensure(profile: ProfileRow): Promise<void>
    get(name: string, revision: string): Promise<ProfileRow | undefined>
  }
  storedProfiles: {
    /** @returns `false` when the organization already has a profile of this name. */
    create(profile: StoredProfileRow): Promise<boolean>
    get(orgId: string, name: string): Promise<StoredProfileRow | undefined>
    page(orgId: string, afterName: string, limit: number): Promise<StoredProfileRow[]>
    all(): Promise<StoredProfileRow[]>
    /** @returns whether it exists. */
    update(orgId: string, name: string, settings: string, updatedAt: string): Promise<boolean>
    /** Removes a profile that no valid key is bound to. */
    remove(orgId: string, name: string): Promise<'removed' | 'unknown' | 'in_use'>
  }
  limits: {
    /** As JSON. @param ownerId of an org or a key. */
    get(ownerId: string): Promise<string | undefined>
    set(ownerId: string, amounts: string): Promise<void>
  }
  usage: {
    /** By day and key. @param untilDay exclusive. */
    list(orgId: string, fromDay: string, untilDay: string): Promise<UsageRow[]>
    /** Adds to the number of refused calls of keys, in one transaction. */
    addRefused(counts: readonly Pick<UsageRow, 'orgId' | 'day' | 'keyId' | 'refused'>[]): Promise<void>
  }
  adminTokens: {
    create(token: AdminTokenRow): Promise<void>
    findBySecretHash(hash: string): Promise<AdminTokenRow | undefined>
    /** By age. */
    page(after: AfterRow, limit: number): Promise<AdminTokenRow[]>
    /** @returns whether this call revoked the token. */
    revoke(id: string, at: string): Promise<boolean>
  }
  threads: ThreadRows
  volumes: VolumeRows
  upstreams: UpstreamRows
  upstreamUsage: UpstreamUsageRows
  runs: {
    /** With a delivery the transaction is durable, since the client relies on the webhook. */
    begin(run: Omit<RunRow, 'finishedAt' | 'ending' | 'result'>, beside?: RunExtras): Promise<void>
    /**
     * Begins a run with an idempotency record in one durable transaction. Replaces a record that has expired by
     * `createdAt` of the run.
     * @returns the existing record, if there is one; then nothing was written.
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
     * Deletes a run that was refused and never executed, with its idempotency record, its delivery and a thread that it created. No
     * audit line is written.
     */
    discard(id: string): Promise<void>
    /**
     * Writes the ending of a run and, if it is stored, its output. A finished run is not changed.
     * @param deliveryDueAt from when its webhook is delivered; `finishedAt` by default.
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
    /** The output of an ended run, while it is kept. */
    output(id: string): Promise<KeptOutput | undefined>
    get(id: string): Promise<RunRow | undefined>
    /** Runs without an ending. */
    unfinished(): Promise<RunRow[]>
  }
  history: HistoryRows
  orgSettings: OrgSettingsRows
  /**
   * The outbox of webhooks. A row is written with its run and becomes due in the transaction that writes the ending.
   */
  deliveries: DeliveryRows
  tasks: {
    /** Durable once it resolves. */
    create(task: TaskRow): Promise<void>
    get(id: string): Promise<TaskRow | undefined>
    /** Ends a task that is still working. @returns whether this call ended it. */
    settle(
      id: string,
      updatedAt: string,
      status: Exclude<TaskRow['status'], 'working'>,
      outcome: string | null,
    ): Promise<boolean>
  }
  /** Lines are only appended; each is chained to all before it (`audit-chain.ts`). Every run that ends adds one. */
  audit: {
    /** @returns the number of the line. */
    append(entry: AuditEntry): Promise<number>
    /** The newest line. */
    head(): Promise<{ seq: number; hash: string }>
    /** Oldest first. */
    list(filter: AuditFilter, afterSeq: number, limit: number): Promise<Slice<AuditLine, number>>
    /** Newest first. */
    newest(filter: AuditFilter, beforeSeq: number, limit: number): Promise<Slice<AuditLine, number>>
  }
  subjects: {
    /** Whether a run of this subject has no ending yet. */
    isActive(orgId: string, subject: string): Promise<boolean>
    /** By age. */
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
