import type { Kysely } from 'kysely'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const profiles = (db: Kysely<Tables>): Store['profiles'] => ({
  async ensure(profile) {
    await db
      .insertInto('profiles')
      .values(profile)
      .onConflict((conflict) => conflict.columns(['name', 'revision']).doNothing())
      .execute()
  },

  get: (name, revision) =>
    db.selectFrom('profiles').selectAll().where('name', '=', name).where('revision', '=', revision).executeTakeFirst(),
})
