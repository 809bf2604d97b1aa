import type { Kysely } from 'kysely'
import { Compiled } from './compiled.ts'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

const byName = new Compiled((db) =>
  db.selectFrom('storedProfiles').selectAll().where('orgId', '=', '').where('name', '=', ''),
)

export const storedProfiles = (db: Kysely<Tables>): Store['storedProfiles'] => ({
  async create(profile) {
    const inserted = await db
      .insertInto('storedProfiles')
      .values(profile)
      .onConflict((conflict) => conflict.columns(['orgId', 'name']).doNothing())
      .executeTakeFirst()
    return inserted.numInsertedOrUpdatedRows === 1n
  },

  get: (orgId, name) => byName.row(db, [orgId, name]),

  page: (orgId, afterName, limit) =>
    db
      .selectFrom('storedProfiles')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('name', '>', afterName)
      .orderBy('name')
      .limit(limit)
      .execute(),

  all: () => db.selectFrom('storedProfiles').selectAll().execute(),

  async update(orgId, name, settings, updatedAt) {
    const changed = await db
      .updateTable('storedProfiles')
      .set({ settings, updatedAt })
      .where('orgId', '=', orgId)
      .where('name', '=', name)
      .executeTakeFirst()
    return changed.numUpdatedRows === 1n
  },

  async remove(orgId, name) {
    const removed = await db
      .deleteFrom('storedProfiles')
      .where('orgId', '=', orgId)
      .where('name', '=', name)
      .where((where) =>
        where.not(
          where.exists(
            where
              .selectFrom('keys')
              .select('keys.id')
              .where('keys.orgId', '=', orgId)
              .where('keys.profile', '=', name)
              .where('keys.revokedAt', 'is', null),
          ),
        ),
      )
      .executeTakeFirst()
    if (removed.numDeletedRows === 1n) return 'removed'
    return (await this.get(orgId, name)) === undefined ? 'unknown' : 'in_use'
  },
})
