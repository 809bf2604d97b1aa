import { type Kysely, sql } from 'kysely'
import { Compiled } from './compiled.ts'
import { indexUpstream, unindexUpstream } from './sqlite-upstreams.ts'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

/** Columns that searches read. */
const searched = ['name', 'displayName', 'description', 'tags', 'listing'] as const

const page = new Compiled((db) =>
  db.selectFrom('upstreams').selectAll().where('orgId', '=', '').where('name', '>', '').orderBy('name').limit(1),
)

export const upstreams = (db: Kysely<Tables>): Store['upstreams'] => ({
  async create(upstream) {
    const inserted = await db
      .insertInto('upstreams')
      .values(upstream)
      .onConflict((conflict) => conflict.columns(['orgId', 'name']).doNothing())
      .executeTakeFirst()
    const isNew = inserted.numInsertedOrUpdatedRows === 1n
    if (isNew) await indexUpstream(db, upstream)
    return isNew
  },

  get: (orgId, name) =>
    db.selectFrom('upstreams').selectAll().where('orgId', '=', orgId).where('name', '=', name).executeTakeFirst(),

  byId: (id) => db.selectFrom('upstreams').selectAll().where('id', '=', id).executeTakeFirst(),

  page: (orgId, afterName, limit) => page.rows(db, [orgId, afterName, limit]),

  async count(orgId) {
    const { count } = await db
      .selectFrom('upstreams')
      .select((select) => select.fn.countAll<number>().as('count'))
      .where('orgId', '=', orgId)
      .executeTakeFirstOrThrow()
    return Number(count)
  },

  async update(id, changes) {
    const changed = await db
      .updateTable('upstreams')
      .set(changes)
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirst()
    if (changed && searched.some((column) => changes[column] !== undefined)) await indexUpstream(db, changed)
    return changed !== undefined
  },

  async remove(id) {
    await unindexUpstream(db, id)
    const removed = await db.deleteFrom('upstreams').where('id', '=', id).executeTakeFirst()
    return removed.numDeletedRows === 1n
  },
})

export const upstreamUsage = (db: Kysely<Tables>): Store['upstreamUsage'] => ({
  async add(counts) {
    await db.transaction().execute(async (transaction) => {
      for (const count of counts) {
        await transaction
          .insertInto('upstreamUsage')
          .values(count)
          .onConflict((conflict) =>
            conflict.columns(['orgId', 'day', 'keyId', 'upstream', 'tool']).doUpdateSet({
              calls: sql<number>`upstream_usage.calls + excluded.calls`,
              failures: sql<number>`upstream_usage.failures + excluded.failures`,
              latencyMs: sql<number>`upstream_usage.latency_ms + excluded.latency_ms`,
              bytes: sql<number>`upstream_usage.bytes + excluded.bytes`,
            }),
          )
          .execute()
      }
    })
  },

  list: (orgId, fromDay, untilDay) =>
    db
      .selectFrom('upstreamUsage')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('day', '>=', fromDay)
      .where('day', '<', untilDay)
      .orderBy('day')
      .orderBy('keyId')
      .orderBy('upstream')
      .orderBy('tool')
      .execute(),
})
