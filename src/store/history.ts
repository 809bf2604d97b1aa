import { type Kysely, sql } from 'kysely'
import type { AfterRow } from './admin-rows.ts'
import type { RunFilter } from './run-history.ts'
import { deleteRuns, toRow } from './runs.ts'
import { scannedRowsMax } from './slice.ts'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

/** @param searches the connection for searches. */
export const history = (db: Kysely<Tables>, searches: Kysely<Tables>): Store['history'] => ({
  async page(orgId, filter, before, limit) {
    const scanned = scannedRuns(orgId, filter, before)
    let query = searches
      .selectFrom('runs')
      .selectAll()
      .where('id', 'in', sql<string>`(select id from (${scanned}))`)
      .where('orgId', '=', orgId)
    if (filter.threadId !== undefined) query = query.where('threadId', '=', filter.threadId)
    if (filter.keyId !== undefined) query = query.where('keyId', '=', filter.keyId)
    if (filter.status !== undefined) query = query.where('status', '=', filter.status)
    if (filter.language !== undefined) query = query.where('language', '=', filter.language)
    for (const [key, value] of filter.metadata ?? []) {
      query = query.where(({ exists, selectFrom }) =>
        exists(
          selectFrom('runMetadata')
            .select('runMetadata.runId')
            .whereRef('runMetadata.runId', '=', 'runs.id')
            .where('runMetadata.key', '=', key)
            .where('runMetadata.value', '=', value),
        ),
      )
    }
    const stored = await query.orderBy('createdAt', 'desc').orderBy('id', 'desc').limit(limit).execute()
    const rows = stored.map(toRow)
    if (rows.length === limit) return { rows, resumeAfter: undefined }
    const last =
      await sql<AfterRow>`select id, created_at from (${scanned}) limit 1 offset ${scannedRowsMax - 1}`.execute(
        searches,
      )
    return { rows, resumeAfter: last.rows[0] }
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

/**
 * Selects the newest runs that match the most selective part of a filter, with one index and in the order of the page, as
 * `id` and `createdAt`. The rest of the filter is applied to each of them.
 */
function scannedRuns(orgId: string, { metadata = [], ...filter }: RunFilter, before: AfterRow) {
  const [pair] = metadata
  const conditions = [
    sql`org_id = ${orgId}`,
    sql`created_at <= ${before.createdAt}`,
    sql`(created_at < ${before.createdAt} or ${sql.ref(pair ? 'run_id' : 'id')} < ${before.id})`,
  ]
  if (filter.createdAfter !== undefined) conditions.push(sql`created_at > ${filter.createdAfter}`)
  if (filter.createdBefore !== undefined) conditions.push(sql`created_at < ${filter.createdBefore}`)
  if (pair) conditions.push(sql`key = ${pair[0]} and value = ${pair[1]}`)
  else if (filter.threadId !== undefined) conditions.push(sql`thread_id = ${filter.threadId}`)
  else if (filter.status !== undefined) conditions.push(sql`status = ${filter.status}`)
  const [table, id] = pair ? ['run_metadata', 'run_id'] : ['runs', 'id']
  return sql<AfterRow>`select ${sql.ref(id)} as id, created_at from ${sql.table(table)}
    where ${sql.join(conditions, sql` and `)} order by created_at desc, ${sql.ref(id)} desc limit ${scannedRowsMax}`
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
