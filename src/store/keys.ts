import type { Expression, ExpressionBuilder, Kysely, SqlBool, UpdateQueryBuilder, UpdateResult } from 'kysely'
import { comesAfter } from './order.ts'
import type { KeyRow, Store } from './store.ts'
import type { Tables } from './tables.ts'

/** Implements `Store.keys`. The two lookups that every call needs are compiled once. */
export const keys = (db: Kysely<Tables>): Store['keys'] => {
  const byId = finder(db, 'id')
  const bySecretHash = finder(db, 'secretHash')
  return {
    async ensure(key) {
      await db
        .insertInto('keys')
        .values(key)
        .onConflict((conflict) => conflict.column('id').doNothing())
        .execute()
    },

    get: byId,

    findBySecretHash: bySecretHash,

    list: (orgId) =>
      db.selectFrom('keys').selectAll().where('orgId', '=', orgId).orderBy('createdAt').orderBy('id').execute(),

    page: (orgId, after, limit) =>
      db
        .selectFrom('keys')
        .selectAll()
        .where('orgId', '=', orgId)
        .where('secretHash', 'is not', null)
        .where(comesAfter(after))
        .orderBy('createdAt')
        .orderBy('id')
        .limit(limit)
        .execute(),

    findByPreviousHash: (hash) => db.selectFrom('keys').selectAll().where('previousHash', '=', hash).executeTakeFirst(),

    update: (id, changes) => changed(db.updateTable('keys').set(changes).where(live(id))),

    rotate: (id, secret) => changed(db.updateTable('keys').set(secret).where(live(id))),

    async expire(now) {
      await db
        .updateTable('keys')
        .set({ revokedAt: now })
        .where('expiresAt', '<=', now)
        .where('revokedAt', 'is', null)
        .execute()
    },

    withEnv: () => db.selectFrom('keys').selectAll().where('env', 'is not', null).execute(),

    async revoke(id, at) {
      const changed = await db
        .updateTable('keys')
        .set({ revokedAt: at })
        .where('id', '=', id)
        .where('revokedAt', 'is', null)
        .executeTakeFirst()
      return changed.numUpdatedRows === 1n
    },

    notRetired: () =>
      db.selectFrom('keys').selectAll().where('revokedAt', 'is not', null).where('retiredAt', 'is', null).execute(),

    async setRetired(id, at) {
      await db.updateTable('keys').set({ retiredAt: at }).where('id', '=', id).execute()
    },
  }
}

/** Matches a key with a secret that is not revoked. */
const live =
  (id: string) =>
  (where: ExpressionBuilder<Tables, 'keys'>): Expression<SqlBool> =>
    where.and([where('id', '=', id), where('revokedAt', 'is', null), where('secretHash', 'is not', null)])

async function changed(update: UpdateQueryBuilder<Tables, 'keys', 'keys', UpdateResult>): Promise<boolean> {
  return (await update.executeTakeFirst()).numUpdatedRows === 1n
}

function finder(db: Kysely<Tables>, column: 'id' | 'secretHash'): (value: string) => Promise<KeyRow | undefined> {
  const query = db.selectFrom('keys').selectAll().where(column, '=', '').compile()
  return async (value) => (await db.executeQuery<KeyRow>({ ...query, parameters: [value] })).rows[0]
}
