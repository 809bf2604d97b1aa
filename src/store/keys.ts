import type { Kysely } from 'kysely'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const keys = (db: Kysely<Tables>): Store['keys'] => ({
  async ensure(key) {
    await db
      .insertInto('keys')
      .values(key)
      .onConflict((conflict) => conflict.column('id').doNothing())
      .execute()
  },

  get: (id) => db.selectFrom('keys').selectAll().where('id', '=', id).executeTakeFirst(),

  findBySecretHash: (hash) => db.selectFrom('keys').selectAll().where('secretHash', '=', hash).executeTakeFirst(),

  list: (orgId) =>
    db.selectFrom('keys').selectAll().where('orgId', '=', orgId).orderBy('createdAt').orderBy('id').execute(),

  async revoke(id, at) {
    const changed = await db
      .updateTable('keys')
      .set({ revokedAt: at })
      .where('id', '=', id)
      .where('revokedAt', 'is', null)
      .executeTakeFirst()
    return changed.numUpdatedRows === 1n
  },
})
