/**
 * How a line of the audit is bound to every line before it. What may have to be erased one day stands beside the line,
 * with a salt of its own; the line holds only the digest of both, which tells nothing once they are gone.
 */
import { createHmac, hash, randomBytes } from 'node:crypto'

/** What the first line follows. */
export const noHash = '0'.repeat(64)

/** A line as it is bound: all that verification reads. */
export interface ChainedLine {
  seq: number
  at: string
  orgId: string | null
  actor: string
  action: string
  target: string
  /** JSON. */
  details: string
  personalDigest: string | null
}

/** @param before hash of the line before, hex. @returns hash of this line, hex SHA-256. */
export function hashOfLine(before: string, line: ChainedLine): string {
  const { seq, at, orgId, actor, action, target, details, personalDigest } = line
  // An array of JSON has one form, so that no two lines read the same.
  return hash('sha256', JSON.stringify([before, seq, at, orgId, actor, action, target, details, personalDigest]))
}

/** 256 random bits, hex: nobody finds what a digest stands for by trying. */
export const newSalt = (): string => randomBytes(32).toString('hex')

/** What stands beside a line: whose it is and what it says. */
export interface Personal {
  orgId: string | null
  subject: string | null
  /** JSON. */
  personal: string
}

/** @param salt hex. @returns hex HMAC-SHA256. */
export const personalDigestOf = (salt: string, { orgId, subject, personal }: Personal): string =>
  createHmac('sha256', salt)
    .update(JSON.stringify([orgId, subject, personal]))
    .digest('hex')
