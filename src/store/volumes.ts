import type { Kysely } from 'kysely'
import { quotaBytesOf, requireStorageRoom } from './storage-limit.ts'
import type { VolumeRows } from './storage-rows.ts'
import type { Tables } from './tables.ts'

export const volumes = (db: Kysely<Tables>): VolumeRows => ({
  async create(volume) {
    const inserted = await db
      .insertInto('volumes')
      .values(volume)
      .onConflict((conflict) => conflict.columns(['orgId', 'slug']).doNothing())
      .executeTakeFirst()
    if (inserted.numInsertedOrUpdatedRows !== 1n) return false
    await requireStorageRoom(db, volume.orgId)
    return true
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
    const changed = await db
      .updateTable('volumes')
      .set(changes)
      .where('id', '=', id)
      .returning('orgId')
      .executeTakeFirst()
    if (changed === undefined) return false
    // A quota only grows.
    if (changes.quotaBytes !== undefined) await requireStorageRoom(db, changed.orgId)
    return true
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

  quotaBytes: (orgId) => quotaBytesOf(db, 'volumes', orgId),
})
