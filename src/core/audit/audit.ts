import { setImmediate } from 'node:timers/promises'
import { hashOfLine, noHash, personalDigestOf } from '../../store/audit-chain.ts'
import type { AuditFilter, AuditLine } from '../../store/audit-rows.ts'
import type { Store } from '../../store/store.ts'

/** The action of the line that records an erasure of personal data. */
export const eraseAction = 'subject.erase'

/** Number of lines per query. Other work can run between two queries. */
const pageLines = 100

/** A line of the audit log as it is returned to clients. */
export interface AuditRecord {
  seq: number
  at: string
  org_id: string | null
  actor: string
  action: string
  target: string
  details: Record<string, unknown>
  /** Personal data; absent if there was none or it was erased. */
  personal?: Record<string, unknown>
  /** Present if personal data was erased. */
  erased?: true
  hash: string
}

export function toRecord(line: AuditLine): AuditRecord {
  const { seq, at, orgId, actor, action, target, details, personal, hash } = line
  return {
    seq,
    at,
    org_id: orgId,
    actor,
    action,
    target,
    details: JSON.parse(details) as Record<string, unknown>,
    ...(personal !== null && { personal: JSON.parse(personal) as Record<string, unknown> }),
    ...(isErased(line) && { erased: true }),
    hash,
  }
}

const isErased = ({ personalDigest, personal }: AuditLine): boolean => personalDigest !== null && personal === null

/** Yields every matching line, oldest first. Reads the lines page by page. */
export async function* eachLine(store: Store, filter: AuditFilter): AsyncGenerator<AuditLine, void, undefined> {
  for (let afterSeq = 0; ; ) {
    const { rows, resumeAfter } = await store.audit.list(filter, afterSeq, pageLines)
    yield* rows
    const last = rows.length === pageLines ? rows.at(-1)?.seq : resumeAfter
    if (last === undefined) return
    afterSeq = last
    await setImmediate()
  }
}

export type Verdict =
  | { holds: true; lines: number; erased: number; head: string }
  /** `seq`: number of the first line that fails verification. */
  | { holds: false; seq: number; problem: string }

/**
 * Verifies that no line was changed, inserted or removed, and that missing personal data was erased by a recorded
 * erasure. Lines removed from the end are detected only with an anchor, which is kept elsewhere.
 * @param anchor number and hash of a line, as an earlier verification returned them.
 */
export async function verifyAudit(store: Store, anchor?: { seq: number; hash: string }): Promise<Verdict> {
  const erasure = new Erasure()
  let before = noHash
  let lines = 0
  for await (const line of eachLine(store, {})) {
    const problem = problemOf(line, lines + 1, before)
    if (problem !== undefined) return { holds: false, seq: lines + 1, problem }
    if (anchor?.seq === line.seq && anchor.hash !== line.hash) {
      return { holds: false, seq: line.seq, problem: 'does not match the anchor' }
    }
    erasure.add(line)
    before = line.hash
    lines += 1
  }
  const unexplained = erasure.firstUnexplained()
  if (unexplained !== undefined) {
    return {
      holds: false,
      seq: unexplained,
      problem: 'has lost its personal data, and no recorded erasure explains it',
    }
  }
  // Lines can have been added since the last page was read, so only fewer lines than the head states are an error.
  const head = await store.audit.head()
  if (head.seq < lines || (head.seq === lines && head.hash !== before)) {
    return { holds: false, seq: lines, problem: 'is not the newest line' }
  }
  if (lines < (anchor?.seq ?? 0))
    return { holds: false, seq: lines + 1, problem: 'is missing: the anchor is a later line' }
  if (head.seq > lines && (await store.audit.list({}, lines, 1)).rows.length === 0) {
    return { holds: false, seq: lines + 1, problem: 'is missing at the end' }
  }
  // The caller stores the head as an anchor, so the lines before it must survive a power cut.
  await store.sync()
  return { holds: true, lines, erased: erasure.lines, head: before }
}

function problemOf(line: AuditLine, expectedSeq: number, before: string): string | undefined {
  if (line.seq !== expectedSeq) return 'is missing'
  if (hashOfLine(before, line) !== line.hash) return 'does not match the previous line: one of the two was changed'
  const { personal, subject, salt, orgId, personalDigest } = line
  if (personal === null) return subject === null && salt === null ? undefined : 'has incomplete personal data'
  if (personalDigest === null) return 'has personal data that was added later'
  if (personalDigestOf(salt ?? '', { orgId, subject, personal }) !== personalDigest)
    return 'has personal data that was changed'
  return undefined
}

/** Collects the lines without their personal data, and the lines that recorded erasures list. */
class Erasure {
  readonly #missing: number[] = []
  readonly #explained: (readonly [number, number])[] = []

  get lines(): number {
    return this.#missing.length
  }

  add(line: AuditLine): void {
    if (isErased(line)) this.#missing.push(line.seq)
    if (line.action !== eraseAction) return
    const { audit_lines: ranges } = JSON.parse(line.details) as { audit_lines: [number, number][] }
    for (const range of ranges) if (range[1] < line.seq) this.#explained.push(range)
  }

  firstUnexplained(): number | undefined {
    const ranges = this.#explained.toSorted(([a], [b]) => a - b)
    let at = 0
    let explainedUntil = 0
    for (const seq of this.#missing) {
      for (let range = ranges[at]; range && range[0] <= seq; range = ranges[++at]) {
        explainedUntil = Math.max(explainedUntil, range[1])
      }
      if (seq > explainedUntil) return seq
    }
    return undefined
  }
}
