/** Rows of the audit log. */

export interface ErasedRows {
  runs: number
  /** Numbers of the lines whose personal data was erased, as inclusive ranges in order. */
  auditLines: readonly (readonly [number, number])[]
}

/** A line to be written to the audit log. */
export interface AuditEntry {
  at: string
  /** `null` for actions on the whole instance. */
  orgId: string | null
  /** ID of the key or admin token that acted; `system` for the product itself, `operator` for a command. */
  actor: string
  /** `run`, or `<noun>.<verb>` for an administrative action. */
  action: string
  /** ID of the target. */
  target: string
  /** Contains no secret and no personal data. */
  details: Readonly<Record<string, unknown>>
  /** Personal data, which can be erased; `null` for none. */
  personal: Readonly<Record<string, unknown>> | null
  /** The person or case that `personal` belongs to; `null` if unknown. */
  subject: string | null
}

export interface AuditFilter {
  orgId?: string | undefined
  action?: string | undefined
  /** Lines with any other action. */
  exceptAction?: string | undefined
  actor?: string | undefined
  subject?: string | undefined
  /** Period of the lines: `from` is inclusive, `until` exclusive. */
  from?: string | undefined
  until?: string | undefined
}

/** A line of the audit log, with its personal data until this is erased. */
export interface AuditLine {
  seq: number
  at: string
  orgId: string | null
  actor: string
  action: string
  target: string
  /** JSON. */
  details: string
  /** Digest of the personal data; it stays when the data is erased. */
  personalDigest: string | null
  hash: string
  subject: string | null
  salt: string | null
  /** JSON. */
  personal: string | null
}
