import type { Kysely } from 'kysely'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const limits = (db: Kysely<Tables>): Store['limits'] => ({
  async get(ownerId) {
    const row = await db.selectFrom('limits').select('amounts').where('ownerId', '=', ownerId).executeTakeFirst()
    return row?.amounts
  },

  async set(ownerId, amounts) {
    await db
      .insertInto('limits')
      .values({ ownerId, amounts })
      .onConflict((conflict) => conflict.column('ownerId').doUpdateSet({ amounts }))
      .execute()
  },
})
