/**
 * Chains each line of the audit to every line before it. Data that may have to be erased later is stored
 * separately with a random salt. The line contains only a digest of both, which reveals nothing after they are erased.
 */
import { createHmac, hash, randomBytes } from 'node:crypto'

/** The value used as the previous hash for the first line. */
export const noHash = '0'.repeat(64)

/** The fields of a line that its hash covers. */
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

/** Returns the hash of a line: hex SHA-256. @param before hash of the previous line, hex. */
export function hashOfLine(before: string, line: ChainedLine): string {
  const { seq, at, orgId, actor, action, target, details, personalDigest } = line
  // A JSON array has one serialization, so no two lines have the same bytes.
  return hash('sha256', JSON.stringify([before, seq, at, orgId, actor, action, target, details, personalDigest]))
}

/** Returns a salt: 256 random bits, hex. It prevents guessing the data of a digest. */
export const newSalt = (): string => randomBytes(32).toString('hex')

/** The personal data of a line. */
export interface Personal {
  orgId: string | null
  subject: string | null
  /** JSON. */
  personal: string
}

/** Returns the digest of personal data: hex HMAC-SHA256. @param salt hex. */
export const personalDigestOf = (salt: string, { orgId, subject, personal }: Personal): string =>
  createHmac('sha256', salt)
    .update(JSON.stringify([orgId, subject, personal]))
    .digest('hex')
