import { type Kysely, sql, type Transaction } from 'kysely'
import { toRow } from './runs.ts'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const history = (db: Kysely<Tables>): Store['history'] => ({
  async page(orgId, filter, before, limit) {
    let query = db
      .selectFrom('runs')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('createdAt', '<=', before.createdAt)
      .where((where) => where.or([where('createdAt', '<', before.createdAt), where('id', '<', before.id)]))
    if (filter.threadId !== undefined) query = query.where('threadId', '=', filter.threadId)
    if (filter.status !== undefined) query = query.where('status', '=', filter.status)
    if (filter.language !== undefined) query = query.where('language', '=', filter.language)
    if (filter.createdAfter !== undefined) query = query.where('createdAt', '>', filter.createdAfter)
    if (filter.createdBefore !== undefined) query = query.where('createdAt', '<', filter.createdBefore)
    for (const [key, value] of filter.metadata ?? []) {
      const runIds = db
        .selectFrom('runMetadata')
        .select('runId')
        .where('orgId', '=', orgId)
        .where('key', '=', key)
        .where('value', '=', value)
      query = query.where('id', 'in', runIds)
    }
    const stored = await query.orderBy('createdAt', 'desc').orderBy('id', 'desc').limit(limit).execute()
    return stored.map(toRow)
  },

  async code(runId) {
    const kept = await db.selectFrom('runCodes').select('code').where('runId', '=', runId).executeTakeFirst()
    return kept?.code
  },

  forget: (orgId, createdBefore, limit) =>
    db.transaction().execute(async (transaction) => {
      const old = await transaction
        .selectFrom('runs')
        .select('id')
        .where('orgId', '=', orgId)
        .where('createdAt', '<', createdBefore)
        .where('finishedAt', 'is not', null)
        .orderBy('createdAt')
        .limit(limit)
        .execute()
      const ids = old.map(({ id }) => id)
      if (ids.length > 0) await deleteRuns(transaction, ids)
      return ids.length
    }),
})

const besideRuns = ['runOutputs', 'runImages', 'runCodes', 'runMetadata', 'claims', 'tasks', 'deliveries'] as const

async function deleteRuns(db: Transaction<Tables>, ids: readonly string[]): Promise<void> {
  for (const table of besideRuns) {
    await sql`delete from ${sql.table(table)} where ${sql.ref('runId')} in (${sql.join(ids)})`.execute(db)
  }
  await db.deleteFrom('runs').where('id', 'in', ids).execute()
}

export const orgSettings = (db: Kysely<Tables>): Store['orgSettings'] => ({
  async get(orgId) {
    const row = await db.selectFrom('orgSettings').select('settings').where('orgId', '=', orgId).executeTakeFirst()
    return row?.settings
  },

  async set(orgId, settings) {
    await db
      .insertInto('orgSettings')
      .values({ orgId, settings })
      .onConflict((conflict) => conflict.column('orgId').doUpdateSet({ settings }))
      .execute()
  },
})
