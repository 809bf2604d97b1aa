import type { Kysely } from 'kysely'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const threads = (db: Kysely<Tables>): Store['threads'] => ({
  get: (orgId, id) =>
    db.selectFrom('threads').selectAll().where('orgId', '=', orgId).where('id', '=', id).executeTakeFirst(),

  async ensure(thread) {
    await db
      .insertInto('threads')
      .values(thread)
      .onConflict((conflict) => conflict.columns(['orgId', 'id']).doNothing())
      .execute()
  },
})
