import type { Kysely, Transaction } from 'kysely'
import type { Append } from './audit.ts'
import type { ErasedRows } from './audit-rows.ts'
import type { DurableTransaction } from './durably.ts'
import { comesAfter } from './order.ts'
import { toRow } from './runs.ts'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

/** @param searches the connection for searches. */
export const subjects = (
  db: Kysely<Tables>,
  searches: Kysely<Tables>,
  durably: DurableTransaction,
  append: Append,
): Store['subjects'] => ({
  async isActive(orgId, subject) {
    const active = await db
      .selectFrom('runs')
      .select('id')
      .where('orgId', '=', orgId)
      .where('subject', '=', subject)
      .where('finishedAt', 'is', null)
      .limit(1)
      .executeTakeFirst()
    return active !== undefined
  },

  async runs(orgId, subject, after, limit) {
    const stored = await searches
      .selectFrom('runs')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('subject', '=', subject)
      .where(comesAfter(after))
      .orderBy('createdAt')
      .orderBy('id')
      .limit(limit)
      .execute()
    return stored.map(toRow)
  },

  threads: (orgId, subject) =>
    db
      .selectFrom('threads')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('subject', '=', subject)
      .orderBy('id')
      .execute(),

  erase: (orgId, subject, line) =>
    durably(async (transaction) => {
      if (await isInUse(transaction, orgId, subject)) return 'in_use'
      const erased = {
        runs: await eraseRuns(transaction, orgId, subject),
        auditLines: await eraseAudit(transaction, orgId, subject),
      }
      await append(transaction, line(erased))
      return erased
    }),
})

/** Erases the data of the runs of a subject. Their rows remain, without personal data, for usage figures. */
async function eraseRuns(db: Transaction<Tables>, orgId: string, subject: string): Promise<number> {
  const ids = db.selectFrom('runs').select('id').where('orgId', '=', orgId).where('subject', '=', subject)
  await db.deleteFrom('runOutputs').where('runId', 'in', ids).execute()
  await db.deleteFrom('runCodes').where('runId', 'in', ids).execute()
  await db.deleteFrom('runMetadata').where('runId', 'in', ids).execute()
  await db.deleteFrom('deliveries').where('runId', 'in', ids).execute()
  await db.deleteFrom('runImages').where('runId', 'in', ids).execute()
  await db.deleteFrom('claims').where('runId', 'in', ids).execute()
  await db.deleteFrom('tasks').where('runId', 'in', ids).execute()
  const changed = await db
    .updateTable('runs')
    .set({ subject: null, metadata: null, threadId: null, envNames: '[]', result: null, codeHash: '' })
    .where('orgId', '=', orgId)
    .where('subject', '=', subject)
    .executeTakeFirst()
  return Number(changed.numUpdatedRows)
}

/** Returns whether a run of the subject is active or a thread of it exists. */
async function isInUse(db: Transaction<Tables>, orgId: string, subject: string): Promise<boolean> {
  const run = await db
    .selectFrom('runs')
    .select('id')
    .where('orgId', '=', orgId)
    .where('subject', '=', subject)
    .where('finishedAt', 'is', null)
    .limit(1)
    .executeTakeFirst()
  const thread = await db
    .selectFrom('threads')
    .select('id')
    .where('orgId', '=', orgId)
    .where('subject', '=', subject)
    .limit(1)
    .executeTakeFirst()
  return run !== undefined || thread !== undefined
}

async function eraseAudit(db: Transaction<Tables>, orgId: string, subject: string): Promise<ErasedRows['auditLines']> {
  const erased = await db
    .updateTable('audit')
    .set({ subject: null, salt: null, personal: null })
    .where('orgId', '=', orgId)
    .where('subject', '=', subject)
    .returning('seq')
    .execute()
  return toRanges(erased.map(({ seq }) => seq).sort((a, b) => a - b))
}

function toRanges(sorted: readonly number[]): [number, number][] {
  const ranges: [number, number][] = []
  for (const seq of sorted) {
    const last = ranges.at(-1)
    if (last && last[1] === seq - 1) last[1] = seq
    else ranges.push([seq, seq])
  }
  return ranges
}
