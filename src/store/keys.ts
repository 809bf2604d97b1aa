import type { Expression, ExpressionBuilder, Kysely, SqlBool, UpdateQueryBuilder, UpdateResult } from 'kysely'
import { Compiled } from './compiled.ts'
import { comesAfter } from './order.ts'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

/** The two lookups that every call needs. */
const byId = new Compiled((db) => db.selectFrom('keys').selectAll().where('id', '=', ''))
const bySecretHash = new Compiled((db) => db.selectFrom('keys').selectAll().where('secretHash', '=', ''))

/** Statements that run every quarter of a second. */
const expire = new Compiled((db) =>
  db.updateTable('keys').set({ revokedAt: '' }).where('expiresAt', '<=', '').where('revokedAt', 'is', null),
)
const notRetired = new Compiled((db) =>
  db.selectFrom('keys').selectAll().where('revokedAt', 'is not', null).where('retiredAt', 'is', null),
)

export const keys = (db: Kysely<Tables>): Store['keys'] => ({
  async ensure(key) {
    await db
      .insertInto('keys')
      .values(key)
      .onConflict((conflict) => conflict.column('id').doNothing())
      .execute()
  },

  get: (id) => byId.row(db, [id]),

  findBySecretHash: (hash) => bySecretHash.row(db, [hash]),

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
    await expire.rows(db, [now, now])
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

  notRetired: () => notRetired.rows(db, []),

  async setRetired(id, at) {
    await db.updateTable('keys').set({ retiredAt: at }).where('id', '=', id).execute()
  },
})

/** Matches a key with a secret that is not revoked. */
const live =
  (id: string) =>
  (where: ExpressionBuilder<Tables, 'keys'>): Expression<SqlBool> =>
    where.and([where('id', '=', id), where('revokedAt', 'is', null), where('secretHash', 'is not', null)])

async function changed(update: UpdateQueryBuilder<Tables, 'keys', 'keys', UpdateResult>): Promise<boolean> {
  return (await update.executeTakeFirst()).numUpdatedRows === 1n
}
