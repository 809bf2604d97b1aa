import { type Kysely, sql } from 'kysely'
import type { ThreadRows } from './storage-rows.ts'
import type { Tables } from './tables.ts'

export const threads = (db: Kysely<Tables>): ThreadRows => ({
  get: (orgId, id) =>
    db.selectFrom('threads').selectAll().where('orgId', '=', orgId).where('id', '=', id).executeTakeFirst(),

  async lock({ orgId, id, runId, subject, profile = null, quotaBytes = null }, at, until) {
    const locked = await db
      .insertInto('threads')
      .values({
        ...{ orgId, id, createdAt: at, lastUsedAt: at, subject, profile, quotaBytes },
        ...{ lockedBy: runId, lockedUntil: until, fence: 1, state: null },
      })
      .onConflict((conflict) =>
        conflict
          .columns(['orgId', 'id'])
          .doUpdateSet({
            lockedBy: runId,
            lockedUntil: until,
            lastUsedAt: at,
            fence: sql`threads.fence + 1`,
            subject: sql`coalesce(threads.subject, excluded.subject)`,
            profile: sql`coalesce(excluded.profile, threads.profile)`,
            quotaBytes: atLeast,
          })
          .where((where) =>
            where.and([
              where('threads.state', 'is', null),
              where.or([where('threads.lockedBy', 'is', null), where('threads.lockedUntil', '<', at)]),
              where.or([
                where('threads.subject', 'is', null),
                where('threads.subject', '=', sql.ref<string>('excluded.subject')),
              ]),
            ]),
          ),
      )
      .returning('fence')
      .executeTakeFirst()
    return locked?.fence
  },

  async use({ orgId, id, profile, quotaBytes }, at) {
    const used = await db
      .insertInto('threads')
      .values({
        ...{ orgId, id, createdAt: at, lastUsedAt: at, subject: null, profile, quotaBytes },
        ...{ ...unlocked, fence: 0, state: null },
      })
      .onConflict((conflict) =>
        conflict
          .columns(['orgId', 'id'])
          .doUpdateSet({ lastUsedAt: at, profile, quotaBytes: atLeast })
          .where('threads.state', 'is', null),
      )
      .executeTakeFirst()
    return used.numInsertedOrUpdatedRows === 1n
  },

  async renew(runIds, until) {
    if (runIds.length === 0) return
    await db.updateTable('threads').set({ lockedUntil: until }).where('lockedBy', 'in', runIds).execute()
  },

  async free(runId, at) {
    await db
      .updateTable('threads')
      .set({ ...unlocked, lastUsedAt: at })
      .where('lockedBy', '=', runId)
      .execute()
  },

  async freeEnded() {
    await db
      .updateTable('threads')
      .set(unlocked)
      .where('lockedBy', 'is not', null)
      .where((where) =>
        where.not(
          where.exists(
            where
              .selectFrom('runs')
              .select('runs.id')
              .whereRef('runs.id', '=', 'threads.lockedBy')
              .where('runs.finishedAt', 'is', null),
          ),
        ),
      )
      .execute()
  },

  page: (orgId, afterId, limit) =>
    db
      .selectFrom('threads')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('id', '>', afterId)
      .where('state', 'is', null)
      .orderBy('id')
      .limit(limit)
      .execute(),

  async beginMaking(row) {
    const inserted = await db
      .insertInto('threads')
      .values({ ...row, ...unlocked, fence: 0, state: 'making' })
      .onConflict((conflict) => conflict.columns(['orgId', 'id']).doNothing())
      .executeTakeFirst()
    return inserted.numInsertedOrUpdatedRows === 1n
  },

  async beginRemoval(orgId, id, at, unusedSince) {
    const changed = await db
      .updateTable('threads')
      .set({ state: 'removing' })
      .where('orgId', '=', orgId)
      .where('id', '=', id)
      .where('state', 'is', null)
      .where((where) => where.or([where('lockedBy', 'is', null), where('lockedUntil', '<', at)]))
      .$if(unusedSince !== undefined, (query) => query.where('lastUsedAt', '<', unusedSince ?? ''))
      .executeTakeFirst()
    return changed.numUpdatedRows === 1n
  },

  async settle(orgId, id) {
    await db.updateTable('threads').set({ state: null }).where('orgId', '=', orgId).where('id', '=', id).execute()
  },

  async remove(orgId, id) {
    await db
      .deleteFrom('threads')
      .where('orgId', '=', orgId)
      .where('id', '=', id)
      .where('state', 'is not', null)
      .execute()
  },

  unsettled: () => db.selectFrom('threads').selectAll().where('state', 'is not', null).execute(),

  uses: () => db.selectFrom('threads').select(['orgId', 'profile']).distinct().execute(),

  idle: ({ orgId, profile }, at, unusedSince, limit) =>
    db
      .selectFrom('threads')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('profile', profile === null ? 'is' : '=', profile)
      .where('lastUsedAt', '<', unusedSince)
      .where('state', 'is', null)
      .where((where) => where.or([where('lockedBy', 'is', null), where('lockedUntil', '<', at)]))
      .orderBy('lastUsedAt')
      .limit(limit)
      .execute(),

  async quotaBytes(orgId) {
    const sum = await db
      .selectFrom('threads')
      .select((select) => select.fn.sum<number | string | null>('quotaBytes').as('bytes'))
      .where('orgId', '=', orgId)
      .executeTakeFirst()
    return Number(sum?.bytes ?? 0)
  },
})

/** A quota never shrinks: keeps the larger one of the row and the new value. */
const atLeast = sql<number | null>`case when threads.quota_bytes > excluded.quota_bytes then threads.quota_bytes
  else coalesce(excluded.quota_bytes, threads.quota_bytes) end`

const unlocked = { lockedBy: null, lockedUntil: null }
