import type { Kysely } from 'kysely'
import { comesAfter } from './order.ts'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const adminTokens = (db: Kysely<Tables>): Store['adminTokens'] => ({
  async create(token) {
    await db.insertInto('adminTokens').values(token).execute()
  },

  findBySecretHash: (hash) =>
    db.selectFrom('adminTokens').selectAll().where('secretHash', '=', hash).executeTakeFirst(),

  get: (id) => db.selectFrom('adminTokens').selectAll().where('id', '=', id).executeTakeFirst(),

  page: (after, limit) =>
    db
      .selectFrom('adminTokens')
      .selectAll()
      .where(comesAfter(after))
      .orderBy('createdAt')
      .orderBy('id')
      .limit(limit)
      .execute(),

  async revoke(id, at) {
    const changed = await db
      .updateTable('adminTokens')
      .set({ revokedAt: at })
      .where('id', '=', id)
      .where('revokedAt', 'is', null)
      .executeTakeFirst()
    return changed.numUpdatedRows === 1n
  },
})
