/** Rows of what an administrator manages. */

/** A profile that an org has besides those of the configuration. */
export interface StoredProfileRow {
  orgId: string
  name: string
  /** Its settings as JSON, sealed: values of variables may be secrets. */
  settings: string
  createdAt: string
  updatedAt: string
}

export interface AdminTokenRow {
  id: string
  name: string
  role: 'owner' | 'admin' | 'member'
  /** The one org that it is for; `null`: the whole instance. */
  orgId: string | null
  /** SHA-256, hex. */
  secretHash: string
  prefix: string
  createdAt: string
  expiresAt: string | null
  revokedAt: string | null
}

/** What the runs of a key used that ended on a day. */
export interface UsageRow {
  orgId: string
  /** UTC, `yyyy-mm-dd`. */
  day: string
  keyId: string
  runs: number
  runMs: number
  cpuMs: number
}

/** Where a page of rows that are ordered by age begins: after this one. */
export interface AfterRow {
  createdAt: string
  id: string
}
