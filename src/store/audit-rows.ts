/** Rows of the audit. */

export interface ErasedRows {
  runs: number
  /** Numbers of the lines that lost what was beside them, as ranges with both ends, in order. */
  auditLines: readonly (readonly [number, number])[]
}

/** What is written to the audit. */
export interface AuditEntry {
  at: string
  /** `null` for what concerns the whole instance. */
  orgId: string | null
  /** Id of the key or admin token that acted; `system` for what the product does by itself, `operator` for a command. */
  actor: string
  /** `run`, or `<noun>.<verb>` for an act. */
  action: string
  /** Id of what was acted on. */
  target: string
  /** Never a secret, and nothing that may have to be erased. */
  details: Readonly<Record<string, unknown>>
  /** What may have to be erased; `null` where there is nothing. */
  personal: Readonly<Record<string, unknown>> | null
  /** The person or case that `personal` belongs to; `null` where nobody said. */
  subject: string | null
}

export interface AuditFilter {
  orgId?: string | undefined
  action?: string | undefined
  actor?: string | undefined
  subject?: string | undefined
  /** The first moment that counts, and the first that does not any more. */
  from?: string | undefined
  until?: string | undefined
}

/** A line of the audit, with what was written beside it as long as it is there. */
export interface AuditLine {
  seq: number
  at: string
  orgId: string | null
  actor: string
  action: string
  target: string
  /** JSON. */
  details: string
  /** Of what was personal; stays when that is erased. */
  personalDigest: string | null
  hash: string
  subject: string | null
  salt: string | null
  /** JSON. */
  personal: string | null
}
