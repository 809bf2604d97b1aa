/** Rows of profiles, admin tokens and usage, and what administrators see of the database. */

/** A profile of one organization, in addition to those of the configuration. */
export interface StoredProfileRow {
  orgId: string
  name: string
  /** Its settings as JSON, sealed, since values of variables can be secrets. */
  settings: string
  createdAt: string
  updatedAt: string
}

export interface AdminTokenRow {
  id: string
  name: string
  role: 'owner' | 'admin' | 'member'
  /** ID of the organization that the token is limited to; `null` for the whole instance. */
  orgId: string | null
  /** SHA-256 of the secret, hex. */
  secretHash: string
  prefix: string
  createdAt: string
  expiresAt: string | null
  revokedAt: string | null
  /** The runtime tools that the token is limited to, as JSON: `included` and `excluded` patterns; `null`: no limit. */
  runtimeTools: string | null
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
  /** Number of calls that were refused because of a limit or missing capacity. They have no run. */
  refused: number
  /** Time for which the sandboxes that it started ran. */
  sandboxMs: number
}

/** The last row of a page, in the order by age; the next page starts after it. */
export interface AfterRow {
  createdAt: string
  id: string
}

/** The sizes of the database and of its write-ahead log. */
export interface DatabaseSize {
  databaseBytes: number
  walBytes: number
  /** Pages that are allocated but unused. */
  freeBytes: number
}
