import type { Kysely } from 'kysely'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const orgs = (db: Kysely<Tables>): Store['orgs'] => ({
  async ensure(org) {
    await db
      .insertInto('orgs')
      .values(org)
      .onConflict((conflict) => conflict.column('id').doNothing())
      .execute()
  },

  async ensureNamed(org) {
    await db
      .insertInto('orgs')
      .values(org)
      .onConflict((conflict) => conflict.column('name').doNothing())
      .execute()
    return db.selectFrom('orgs').selectAll().where('name', '=', org.name).executeTakeFirstOrThrow()
  },

  list: () => db.selectFrom('orgs').selectAll().orderBy('name').execute(),

  get: (id) => db.selectFrom('orgs').selectAll().where('id', '=', id).executeTakeFirst(),
})
