/**
 * The rows of the product. Every method is async, whatever the database: SQLite now, PostgreSQL by the same contract.
 * Times are ISO 8601 strings in UTC. Nothing here knows HTTP, MCP or a sandbox.
 */
import type { Ending, Language, RunResult } from '../base/run.ts'

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

export interface ThreadRow {
  orgId: string
  id: string
  createdAt: string
  lastUsedAt: string
  /** The run that holds the thread, its lease and its fencing number. */
  lockedBy: string | null
  lockedUntil: string | null
  fence: number
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
  /** The runner that has the run and which of its lives. */
  runnerId: string
  epoch: number
  detached: boolean
  createdAt: string
  finishedAt: string | null
  ending: Ending | null
  /** Everything measured; `null` until finished, and where nothing could be measured. */
  result: RunResult | null
}

export interface Store {
  orgs: {
    /** Creates the org, or leaves the one with this id as it is. */
    ensure(org: OrgRow): Promise<void>
    /** @returns the org with this name: the one that has it, or else this one, made now. */
    ensureNamed(org: OrgRow): Promise<OrgRow>
    get(id: string): Promise<OrgRow | undefined>
    /** By name. */
    list(): Promise<OrgRow[]>
  }
  keys: {
    ensure(key: KeyRow): Promise<void>
    get(id: string): Promise<KeyRow | undefined>
    findBySecretHash(hash: string): Promise<KeyRow | undefined>
    list(orgId: string): Promise<KeyRow[]>
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
  threads: {
    get(orgId: string, id: string): Promise<ThreadRow | undefined>
    ensure(thread: ThreadRow): Promise<void>
  }
  runs: {
    begin(run: Omit<RunRow, 'finishedAt' | 'ending' | 'result'>): Promise<void>
    /** Writes the ending once; a run that is finished already stays as it is. @returns whether this call wrote it. */
    finish(id: string, finishedAt: string, ending: Ending, result: RunResult | null): Promise<boolean>
    get(id: string): Promise<RunRow | undefined>
    /** Runs without an ending. */
    unfinished(): Promise<RunRow[]>
  }
  close(): Promise<void>
}
