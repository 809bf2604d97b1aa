/**
 * The rows of the product. Every method is async, whatever the database: SQLite now, PostgreSQL by the same contract.
 * Times are ISO 8601 strings in UTC. Nothing here knows HTTP, MCP or a sandbox.
 */
import type { Ending, Language, RunResult, ShownImage } from '../base/run.ts'
import type { AdminTokenRow, AfterRow, StoredProfileRow, UsageRow } from './admin-rows.ts'
import type { AuditEntry, AuditFilter, AuditLine, ErasedRows } from './audit-rows.ts'
import type { DeliveryMode, DeliveryRows, HistoryRows, OrgSettingsRows, RunExtras } from './run-history.ts'
import type { ThreadRow, ThreadRows, VolumeRows } from './storage-rows.ts'

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
  /** How the secret begins, so that its owner can tell it from others; `null` where there is none. */
  prefix: string | null
  createdAt: string
  /** From then on it is refused, and what it has going is ended. */
  expiresAt: string | null
  /** Variables of its runs, sealed; `null` where there are none. */
  env: string | null
  /** Names of the tools that it may use, as JSON; `null`: all that its profile offers. */
  tools: string | null
  /** Of the secret before the last rotation, which is good for a while. */
  previousHash: string | null
  previousUntil: string | null
  revokedAt: string | null
  /** When everything that a revoked key had going was known to have ended. */
  retiredAt: string | null
}

/** A profile as it was when its revision first ran: what a run row refers to stays explainable. */
export interface ProfileRow {
  name: string
  revision: string
  /** The whole profile as JSON, env values left out. */
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
  /** What the caller attached, as JSON; `null` when nothing. */
  metadata: string | null
  /** The person or case of the client's that it belongs to. */
  subject: string | null
  /** Names of the variables of the call, as JSON. */
  envNames: string
  /** The runner that has the run and which of its lives. */
  runnerId: string
  epoch: number
  detached: boolean
  /** What it prints is kept when it ends, for those who ask later. */
  kept: boolean
  /** And for as long as this row is. */
  keepsOutput: boolean
  threadId: string | null
  deliveryMode: DeliveryMode
  createdAt: string
  finishedAt: string | null
  ending: Ending | null
  /** Everything measured; `null` until finished, and where nothing could be measured. */
  result: RunResult | null
}

/** One stream of an ended run, as much of it as was kept. */
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
  /** In which order all of it came (`core/output-order.ts`); absent where that was not kept. */
  order?: Uint8Array
}

/** A promise that whatever a caller names with a key is executed at most once. */
export interface ClaimRow {
  orgId: string
  keyId: string
  /** Chosen by the caller. */
  idempotencyKey: string
  /** SHA-256 of what was asked, hex: the same key never means two things. */
  requestHash: string
  runId: string
  expiresAt: string
}

export interface TaskRow {
  id: string
  orgId: string
  keyId: string
  /** The run that the outcome comes from; `null` where it is some other work of the front that made the task. */
  runId: string | null
  /** The front process that made it. */
  frontId: string
  status: 'working' | 'completed' | 'failed' | 'cancelled'
  /** Of a completed task its result, of a failed one its error, as JSON. */
  outcome: string | null
  createdAt: string
  updatedAt: string
  expiresAt: string
}

/** What one act can change, together with the line that says so. */
export type Rows = Pick<
  Store,
  'orgs' | 'keys' | 'storedProfiles' | 'limits' | 'adminTokens' | 'hiddenTools' | 'orgSettings' | 'secrets' | 'volumes'
>

export interface Store {
  /** Does `work` and writes the line, in one transaction that survives a power cut; neither when `work` throws. */
  audited<Result>(line: AuditEntry, work: (rows: Rows) => Promise<Result>): Promise<Result>
  /** Seals everything that is sealed anew, in one such transaction. `null` stays. */
  reseal(again: {
    secret(row: { name: string; value: string }): string
    env(row: KeyRow): string | null
    profile(row: StoredProfileRow): string
  }): Promise<void>
  orgs: {
    /** Creates the org, or leaves the one with this id as it is. */
    ensure(org: OrgRow): Promise<void>
    /** @returns the org with this name: the one that has it, or else this one, made now. */
    ensureNamed(org: OrgRow): Promise<OrgRow>
    get(id: string): Promise<OrgRow | undefined>
    /** By name. */
    list(): Promise<OrgRow[]>
    page(afterName: string, limit: number): Promise<OrgRow[]>
    /** @returns `false` when another org has the name. */
    create(org: OrgRow): Promise<boolean>
    /** @returns whether there is such an org; `taken` when another has the name. */
    rename(id: string, name: string): Promise<boolean | 'taken'>
  }
  keys: {
    ensure(key: KeyRow): Promise<void>
    get(id: string): Promise<KeyRow | undefined>
    findBySecretHash(hash: string): Promise<KeyRow | undefined>
    list(orgId: string): Promise<KeyRow[]>
    /** Those with a secret, by age. */
    page(orgId: string, after: AfterRow, limit: number): Promise<KeyRow[]>
    /** The key whose secret before its last rotation this was. */
    findByPreviousHash(hash: string): Promise<KeyRow | undefined>
    /** @returns whether there is such a live key. */
    update(
      id: string,
      changes: Partial<Pick<KeyRow, 'name' | 'profile' | 'expiresAt' | 'env' | 'tools'>>,
    ): Promise<boolean>
    /** Gives a live key another secret. @returns whether there is one. */
    rotate(
      id: string,
      secret: Pick<KeyRow, 'secretHash' | 'prefix' | 'previousHash' | 'previousUntil'>,
    ): Promise<boolean>
    /** Revokes every key whose time is over. */
    expire(now: string): Promise<void>
    /** Every key that has variables. */
    withEnv(): Promise<KeyRow[]>
    /** @returns whether a live key was revoked by this call. */
    revoke(id: string, at: string): Promise<boolean>
    /** Keys that are revoked and may still have something going. */
    notRetired(): Promise<KeyRow[]>
    setRetired(id: string, at: string): Promise<void>
  }
  profiles: {
    ensure(profile: ProfileRow): Promise<void>
    get(name: string, revision: string): Promise<ProfileRow | undefined>
  }
  storedProfiles: {
    /** @returns `false` when the org has one of this name. */
    create(profile: StoredProfileRow): Promise<boolean>
    get(orgId: string, name: string): Promise<StoredProfileRow | undefined>
    page(orgId: string, afterName: string, limit: number): Promise<StoredProfileRow[]>
    all(): Promise<StoredProfileRow[]>
    /** @returns whether there is one. */
    update(orgId: string, name: string, settings: string, updatedAt: string): Promise<boolean>
    /** Removes one that no live key is bound to. */
    remove(orgId: string, name: string): Promise<'removed' | 'unknown' | 'in_use'>
  }
  limits: {
    /** As JSON. @param ownerId of an org or a key. */
    get(ownerId: string): Promise<string | undefined>
    set(ownerId: string, amounts: string): Promise<void>
  }
  usage: {
    /** By day and key. @param untilDay the first day that does not count. */
    list(orgId: string, fromDay: string, untilDay: string): Promise<UsageRow[]>
  }
  adminTokens: {
    create(token: AdminTokenRow): Promise<void>
    findBySecretHash(hash: string): Promise<AdminTokenRow | undefined>
    /** By age. */
    page(after: AfterRow, limit: number): Promise<AdminTokenRow[]>
    /** @returns whether a live token was revoked by this call. */
    revoke(id: string, at: string): Promise<boolean>
  }
  /** Signed links that are good once, each until it expires. */
  usedLinks: {
    /** @returns whether this was the first use. */
    use(id: string, expiresAt: string): Promise<boolean>
    giveBack(id: string): Promise<void>
  }
  threads: ThreadRows
  volumes: VolumeRows
  runs: {
    /** With a delivery it survives a power cut: somebody was promised to be told. */
    begin(run: Omit<RunRow, 'finishedAt' | 'ending' | 'result'>, beside?: RunExtras): Promise<void>
    /**
     * Begins a run that is executed at most once, with its claim, in one transaction that survives a power cut.
     * A claim that has expired by `createdAt` of the run makes room.
     * @returns the claim that is there already, and then nothing was written.
     */
    beginOnce(
      run: Omit<RunRow, 'finishedAt' | 'ending' | 'result'>,
      claim: ClaimRow,
      beside?: RunExtras,
    ): Promise<ClaimRow | undefined>
    /** Gives up the claim of a run that was never executed. */
    unclaim(id: string): Promise<void>
    /**
     * Writes the ending once, and with it what the run printed where that is kept; a run that is finished already
     * stays as it is. @returns the run, where this call wrote it.
     */
    finish(
      id: string,
      finishedAt: string,
      ending: Ending,
      result: RunResult | null,
      output?: KeptOutput,
    ): Promise<RunRow | undefined>
    /** What an ended run printed, while it is kept. */
    output(id: string): Promise<KeptOutput | undefined>
    get(id: string): Promise<RunRow | undefined>
    /** Runs without an ending. */
    unfinished(): Promise<RunRow[]>
  }
  history: HistoryRows
  orgSettings: OrgSettingsRows
  /** The outbox. A row is written with its run, and becomes due in the transaction that writes the ending. */
  deliveries: DeliveryRows
  tasks: {
    /** Survives a power cut once it resolves. */
    create(task: TaskRow): Promise<void>
    get(id: string): Promise<TaskRow | undefined>
    /** Ends a task that is still working. @returns whether this call did. */
    settle(
      id: string,
      updatedAt: string,
      status: Exclude<TaskRow['status'], 'working'>,
      outcome: string | null,
    ): Promise<boolean>
  }
  hiddenTools: {
    /** By name. */
    list(orgId: string): Promise<string[]>
    hide(orgId: string, tool: string): Promise<void>
    show(orgId: string, tool: string): Promise<void>
  }
  /** Lines are only ever added; each is bound to all before it (`audit-chain.ts`). Every run that ends adds its own. */
  audit: {
    /** @returns the number of the line. */
    append(entry: AuditEntry): Promise<number>
    /** The newest line. */
    head(): Promise<{ seq: number; hash: string }>
    /** Oldest first. */
    list(filter: AuditFilter, afterSeq: number, limit: number): Promise<AuditLine[]>
    /** Newest first. */
    newest(filter: AuditFilter, beforeSeq: number, limit: number): Promise<AuditLine[]>
  }
  subjects: {
    /** Whether a run of this subject has no ending yet. */
    isActive(orgId: string, subject: string): Promise<boolean>
    /** By age. */
    runs(orgId: string, subject: string, after: { createdAt: string; id: string }, limit: number): Promise<RunRow[]>
    threads(orgId: string, subject: string): Promise<ThreadRow[]>
    /**
     * Forgets in one transaction all that rows say of a subject: its runs with what they printed, and what stands beside
     * the lines of the audit; and writes the line that says so. Nothing of it is left in the files of the database.
     * @returns how much there was; `in_use` while one of its runs goes on or one of its threads is there.
     */
    erase(orgId: string, subject: string, line: (erased: ErasedRows) => AuditEntry): Promise<ErasedRows | 'in_use'>
  }
  secrets: {
    /** @returns the secret of this name: the one that is there, or else this one, kept from now on. */
    ensure(name: string, value: string): Promise<string>
    set(name: string, value: string): Promise<void>
    all(): Promise<{ name: string; value: string }[]>
  }
  /** Deletes tasks and claims that expired before `now`, and what runs printed that ended before `endedBefore`. */
  forget(now: string, endedBefore: string): Promise<void>
  close(): Promise<void>
}
