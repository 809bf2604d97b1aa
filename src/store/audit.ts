import { type Kysely, sql, type Transaction } from 'kysely'
import { hashOfLine, newSalt, personalDigestOf } from './audit-chain.ts'
import type { AuditEntry, AuditFilter, AuditLine } from './audit-rows.ts'
import { Compiled } from './compiled.ts'
import { type Slice, scannedRowsMax } from './slice.ts'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

/** Adds a line within a transaction. @returns its number. */
export type Append = (transaction: Transaction<Tables>, entry: AuditEntry) => Promise<number>

const advance = new Compiled((db) =>
  db
    .updateTable('auditHead')
    .set((head) => ({ seq: sql<number>`${head.ref('seq')} + 1` }))
    .returning(['seq', 'hash']),
)
const insert = new Compiled((db) => db.insertInto('audit').values(anyLine))
const bind = new Compiled((db) => db.updateTable('auditHead').set({ hash: '' }))

/** Writes the head first, which takes the lock, so that appends are serialized. */
export const append: Append = async (transaction, { at, orgId, actor, action, target, details, personal, subject }) => {
  const [head] = await advance.rows(transaction, [])
  if (head === undefined) throw new Error('the audit has no head')
  const bound = { seq: head.seq, at, orgId, actor, action, target, details: JSON.stringify(details) }
  const beside = toPersonal(orgId, subject, personal)
  const line = { ...bound, personalDigest: beside.digest }
  const hash = hashOfLine(head.hash, line)
  await insert.rows(transaction, Object.values({ ...line, hash, ...beside.columns }))
  await bind.rows(transaction, [hash])
  return head.seq
}

function toPersonal(orgId: string | null, subject: string | null, value: AuditEntry['personal']) {
  if (value === null) return { digest: null, columns: { subject: null, salt: null, personal: null } }
  const salt = newSalt()
  const personal = JSON.stringify(value)
  return { digest: personalDigestOf(salt, { orgId, subject, personal }), columns: { subject, salt, personal } }
}

/** Names the columns in the order in which their values are given. */
const anyLine: AuditLine = {
  seq: 0,
  at: '',
  orgId: '',
  actor: '',
  action: '',
  target: '',
  details: '',
  personalDigest: '',
  hash: '',
  subject: '',
  salt: '',
  personal: '',
}

/** @param searches the connection for searches. */
export const audit = (db: Kysely<Tables>, searches: Kysely<Tables>, append: Append): Store['audit'] => ({
  append: (entry) => db.transaction().execute((transaction) => append(transaction, entry)),

  head: () => db.selectFrom('auditHead').select(['seq', 'hash']).executeTakeFirstOrThrow(),

  list: (filter, afterSeq, limit) => search(searches, filter, { direction: 'asc', from: afterSeq, limit }),

  newest: (filter, beforeSeq, limit) => search(searches, filter, { direction: 'desc', from: beforeSeq, limit }),
})

/** Searches a bounded number of lines. @param from exclusive. */
async function search(
  db: Kysely<Tables>,
  { orgId, action, exceptAction, actor, subject, from, until }: AuditFilter,
  page: { direction: 'asc' | 'desc'; from: number; limit: number },
): Promise<Slice<AuditLine, number>> {
  // The lines that an index finds; the rest of the filter is applied to each of them.
  let scanned = db
    .selectFrom('audit')
    .select('seq')
    .where('seq', page.direction === 'asc' ? '>' : '<', page.from)
    .orderBy('seq', page.direction)
    .limit(scannedRowsMax)
  if (orgId !== undefined) scanned = scanned.where('orgId', '=', orgId)
  if (orgId !== undefined && subject !== undefined) scanned = scanned.where('subject', '=', subject)
  let query = db.selectFrom('audit').selectAll().where('seq', 'in', scanned)
  if (action !== undefined) query = query.where('action', '=', action)
  if (exceptAction !== undefined) query = query.where('action', '!=', exceptAction)
  if (actor !== undefined) query = query.where('actor', '=', actor)
  if (subject !== undefined) query = query.where('subject', '=', subject)
  if (from !== undefined) query = query.where('at', '>=', from)
  if (until !== undefined) query = query.where('at', '<', until)
  const rows = await query.orderBy('seq', page.direction).limit(page.limit).execute()
  if (rows.length === page.limit) return { rows, resumeAfter: undefined }
  const last = await scanned
    .limit(1)
    .offset(scannedRowsMax - 1)
    .executeTakeFirst()
  return { rows, resumeAfter: last?.seq }
}
