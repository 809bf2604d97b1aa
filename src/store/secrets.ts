import type { Kysely } from 'kysely'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const secrets = (db: Kysely<Tables>): Store['secrets'] => ({
  async ensure(name, value) {
    await db
      .insertInto('secrets')
      .values({ name, value })
      .onConflict((conflict) => conflict.column('name').doNothing())
      .execute()
    const kept = await db.selectFrom('secrets').select('value').where('name', '=', name).executeTakeFirstOrThrow()
    return kept.value
  },

  async set(name, value) {
    await db.updateTable('secrets').set({ value }).where('name', '=', name).execute()
  },

  all: () => db.selectFrom('secrets').selectAll().execute(),
})
