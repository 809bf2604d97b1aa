import { type Kysely, sql, type Transaction } from 'kysely'
import { liveStates } from './sandbox-rows.ts'
import { quotaBytesOf, requireStorageRoom } from './storage-limit.ts'
import type { ThreadRow, ThreadRows } from './storage-rows.ts'
import type { Tables } from './tables.ts'

export const threads = (db: Kysely<Tables>): ThreadRows => ({
  get: (orgId, id) =>
    db.selectFrom('threads').selectAll().where('orgId', '=', orgId).where('id', '=', id).executeTakeFirst(),

  lock: ({ orgId, id, runId, subject, profile = null, quotaBytes = null }, at, until) =>
    withinLimit(db, { orgId, id, quotaBytes }, async (transaction) => {
      const locked = await transaction
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
    }),

  use: ({ orgId, id, profile, quotaBytes }, at) =>
    withinLimit(db, { orgId, id, quotaBytes }, async (transaction) => {
      const used = await transaction
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
    }),

  async renew(runIds, until) {
    if (runIds.length === 0) return
    await db.updateTable('threads').set({ lockedUntil: until }).where('lockedBy', 'in', runIds).execute()
  },

  async renewOfSandboxes(until) {
    await db
      .updateTable('threads')
      .set({ lockedUntil: until })
      .where('lockedBy', 'in', (select) =>
        select.selectFrom('sandboxes').select('sandboxes.id').where('sandboxes.state', 'in', liveStates),
      )
      .execute()
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
      .where((where) =>
        where.not(
          where.exists(
            where
              .selectFrom('sandboxes')
              .select('sandboxes.id')
              .whereRef('sandboxes.id', '=', 'threads.lockedBy')
              .where('sandboxes.state', 'in', liveStates),
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

  beginMaking: (row) =>
    withinLimit(db, row, async (transaction) => {
      const inserted = await transaction
        .insertInto('threads')
        .values({ ...row, ...unlocked, fence: 0, state: 'making' })
        .onConflict((conflict) => conflict.columns(['orgId', 'id']).doNothing())
        .executeTakeFirst()
      return inserted.numInsertedOrUpdatedRows === 1n
    }),

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

  quotaBytes: (orgId) => quotaBytesOf(db, 'threads', orgId),
})

/** The larger one of the stored and the new quota, since a quota never shrinks. */
const atLeast = sql<number | null>`case when threads.quota_bytes > excluded.quota_bytes then threads.quota_bytes
  else coalesce(excluded.quota_bytes, threads.quota_bytes) end`

const unlocked = { lockedBy: null, lockedUntil: null }

/**
 * Runs a write that can create or enlarge a thread, in one transaction with the check of the storage limit.
 * @param write returns a falsy value if it changed nothing.
 * @throws Refusal limit_reached; then nothing is changed.
 */
const withinLimit = <Result>(
  db: Kysely<Tables>,
  { orgId, id, quotaBytes }: Pick<ThreadRow, 'orgId' | 'id' | 'quotaBytes'>,
  write: (transaction: Transaction<Tables>) => Promise<Result>,
): Promise<Result> =>
  db.transaction().execute(async (transaction) => {
    // Changes nothing: the first statement is a write, which takes the lock, so that no other process writes in between.
    const before = await transaction
      .updateTable('threads')
      .set({ fence: sql`fence` })
      .where('orgId', '=', orgId)
      .where('id', '=', id)
      .returning('quotaBytes')
      .executeTakeFirst()
    const result = await write(transaction)
    if (result && (quotaBytes ?? 0) > (before?.quotaBytes ?? 0)) await requireStorageRoom(transaction, orgId)
    return result
  })
