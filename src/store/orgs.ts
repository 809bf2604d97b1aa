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

  page: (afterName, limit) =>
    db.selectFrom('orgs').selectAll().where('name', '>', afterName).orderBy('name').limit(limit).execute(),

  async create(org) {
    const inserted = await db
      .insertInto('orgs')
      .values(org)
      .onConflict((conflict) => conflict.column('name').doNothing())
      .executeTakeFirst()
    return inserted.numInsertedOrUpdatedRows === 1n
  },

  async rename(id, name) {
    const changed = await db
      .updateTable('orgs')
      .set({ name })
      .where('id', '=', id)
      .where((where) => {
        const other = where.selectFrom('orgs as other').select('other.id').where('other.name', '=', name)
        return where.not(where.exists(other.where('other.id', '!=', id)))
      })
      .executeTakeFirst()
    if (changed.numUpdatedRows === 1n) return true
    return (await db.selectFrom('orgs').select('id').where('id', '=', id).executeTakeFirst()) ? 'taken' : false
  },

  list: () => db.selectFrom('orgs').selectAll().orderBy('name').execute(),

  get: (id) => db.selectFrom('orgs').selectAll().where('id', '=', id).executeTakeFirst(),
})
