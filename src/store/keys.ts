import type { Kysely } from 'kysely'
import type { KeyRow, Store } from './store.ts'
import type { Tables } from './tables.ts'

/** The two looks at a key that every call waits for are compiled once: that is most of what they cost. */
export const keys = (db: Kysely<Tables>): Store['keys'] => {
  const byId = finder(db, 'id')
  const bySecretHash = finder(db, 'secretHash')
  return {
    async ensure(key) {
      await db
        .insertInto('keys')
        .values(key)
        .onConflict((conflict) => conflict.column('id').doNothing())
        .execute()
    },

    get: byId,

    findBySecretHash: bySecretHash,

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

    notRetired: () =>
      db.selectFrom('keys').selectAll().where('revokedAt', 'is not', null).where('retiredAt', 'is', null).execute(),

    async setRetired(id, at) {
      await db.updateTable('keys').set({ retiredAt: at }).where('id', '=', id).execute()
    },
  }
}

function finder(db: Kysely<Tables>, column: 'id' | 'secretHash'): (value: string) => Promise<KeyRow | undefined> {
  const query = db.selectFrom('keys').selectAll().where(column, '=', '').compile()
  return async (value) => (await db.executeQuery<KeyRow>({ ...query, parameters: [value] })).rows[0]
}
