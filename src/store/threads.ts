import { type Kysely, sql } from 'kysely'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const threads = (db: Kysely<Tables>): Store['threads'] => ({
  get: (orgId, id) =>
    db.selectFrom('threads').selectAll().where('orgId', '=', orgId).where('id', '=', id).executeTakeFirst(),

  async lock({ orgId, id, runId, subject }, at, until) {
    const locked = await db
      .insertInto('threads')
      .values({ orgId, id, createdAt: at, lastUsedAt: at, lockedBy: runId, lockedUntil: until, fence: 1, subject })
      .onConflict((conflict) =>
        conflict
          .columns(['orgId', 'id'])
          .doUpdateSet({
            lockedBy: runId,
            lockedUntil: until,
            lastUsedAt: at,
            fence: sql`threads.fence + 1`,
            subject: sql`coalesce(threads.subject, excluded.subject)`,
          })
          .where((where) =>
            where.and([
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

  async use(orgId, id, at) {
    await db
      .insertInto('threads')
      .values({
        orgId,
        id,
        createdAt: at,
        lastUsedAt: at,
        lockedBy: null,
        lockedUntil: null,
        fence: 0,
        subject: null,
      })
      .onConflict((conflict) => conflict.columns(['orgId', 'id']).doUpdateSet({ lastUsedAt: at }))
      .execute()
  },

  async renew(runIds, until) {
    if (runIds.length === 0) return
    await db.updateTable('threads').set({ lockedUntil: until }).where('lockedBy', 'in', runIds).execute()
  },

  async free(runId) {
    await db.updateTable('threads').set(unlocked).where('lockedBy', '=', runId).execute()
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
})

const unlocked = { lockedBy: null, lockedUntil: null }
