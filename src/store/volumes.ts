import type { Kysely } from 'kysely'
import type { VolumeRows } from './storage-rows.ts'
import type { Tables } from './tables.ts'

export const volumes = (db: Kysely<Tables>): VolumeRows => ({
  async create(volume) {
    const inserted = await db
      .insertInto('volumes')
      .values(volume)
      .onConflict((conflict) => conflict.columns(['orgId', 'slug']).doNothing())
      .executeTakeFirst()
    return inserted.numInsertedOrUpdatedRows === 1n
  },

  async ofSlugs(orgId, slugs) {
    if (slugs.length === 0) return []
    return db
      .selectFrom('volumes')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('slug', 'in', slugs)
      .where('removingAt', 'is', null)
      .execute()
  },

  get: (orgId, slug) =>
    db.selectFrom('volumes').selectAll().where('orgId', '=', orgId).where('slug', '=', slug).executeTakeFirst(),

  page: (orgId, afterSlug, limit) =>
    db
      .selectFrom('volumes')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('slug', '>', afterSlug)
      .orderBy('slug')
      .limit(limit)
      .execute(),

  async update(id, changes) {
    const { slug } = changes
    const isTaken = await db
      .selectFrom('volumes as other')
      .innerJoin('volumes as own', 'own.orgId', 'other.orgId')
      .select('other.id')
      .where('own.id', '=', id)
      .where('other.id', '!=', id)
      .where('other.slug', '=', slug ?? '')
      .executeTakeFirst()
    if (isTaken) return 'taken'
    const changed = await db.updateTable('volumes').set(changes).where('id', '=', id).executeTakeFirst()
    return changed.numUpdatedRows === 1n
  },

  async setRemoving(id, at) {
    const changed = await db
      .updateTable('volumes')
      .set({ removingAt: at })
      .where('id', '=', id)
      .where('removingAt', at === null ? 'is not' : 'is', null)
      .executeTakeFirst()
    return changed.numUpdatedRows === 1n
  },

  async remove(id) {
    await db.deleteFrom('volumes').where('id', '=', id).where('removingAt', 'is not', null).execute()
  },

  removing: () => db.selectFrom('volumes').selectAll().where('removingAt', 'is not', null).execute(),

  async quotaBytes(orgId) {
    const sum = await db
      .selectFrom('volumes')
      .select((select) => select.fn.sum<number | string | null>('quotaBytes').as('bytes'))
      .where('orgId', '=', orgId)
      .executeTakeFirst()
    return Number(sum?.bytes ?? 0)
  },
})
