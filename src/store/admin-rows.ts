/** Rows of what an administrator manages. */

/** A profile of one organization, in addition to those of the configuration. */
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
  /** The organization that it is limited to; `null` for the whole instance. */
  orgId: string | null
  /** SHA-256, hex. */
  secretHash: string
  prefix: string
  createdAt: string
  expiresAt: string | null
  revokedAt: string | null
}

/** Usage of the runs of a key that ended on a day. */
export interface UsageRow {
  orgId: string
  /** UTC, `yyyy-mm-dd`. */
  day: string
  keyId: string
  runs: number
  runMs: number
  cpuMs: number
  /** Calls that were refused for a limit or for lack of capacity, and so have no run. */
  refused: number
}

/** The last row of a page, in the order by age; the next page starts after it. */
export interface AfterRow {
  createdAt: string
  id: string
}
