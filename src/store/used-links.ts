import type { Kysely } from 'kysely'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const usedLinks = (db: Kysely<Tables>): Store['usedLinks'] => ({
  async use(id, expiresAt) {
    const inserted = await db
      .insertInto('usedLinks')
      .values({ id, expiresAt })
      .onConflict((conflict) => conflict.column('id').doNothing())
      .executeTakeFirst()
    return inserted.numInsertedOrUpdatedRows === 1n
  },

  async giveBack(id) {
    await db.deleteFrom('usedLinks').where('id', '=', id).execute()
  },
})
