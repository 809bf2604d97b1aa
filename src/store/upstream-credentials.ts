import type { Kysely } from 'kysely'
import { Compiled } from './compiled.ts'
import type { Tables } from './tables.ts'

declare module './tables.ts' {
  interface Tables {
    upstreamCredentials: UpstreamCredentialRow
  }
}

/** A credential for an upstream that is not part of its settings: of a key, or obtained by a login. */
export interface UpstreamCredentialRow {
  upstreamId: string
  /** The key that uses it; empty if all keys of the organization share it. */
  keyId: string
  /** Sealed JSON; `null` until the first login is complete. */
  secrets: string | null
  /** A login that has begun, as sealed JSON. */
  pendingLogin: string | null
  updatedAt: string
}

export interface UpstreamCredentialRows {
  get(upstreamId: string, keyId: string): Promise<UpstreamCredentialRow | undefined>
  /** Lists the credentials of an upstream, the shared one first. */
  list(upstreamId: string): Promise<UpstreamCredentialRow[]>
  /** Lists the credentials for all upstreams of an organization. */
  ofOrg(orgId: string, limit: number): Promise<(UpstreamCredentialRow & { secrets: string })[]>
  /** Inserts a row, or replaces the given fields of the existing one. */
  put(
    row: Pick<UpstreamCredentialRow, 'upstreamId' | 'keyId' | 'updatedAt'> &
      Partial<Pick<UpstreamCredentialRow, 'secrets' | 'pendingLogin'>>,
  ): Promise<void>
  /** Takes a pending login, so that it is used once. @returns `false` if it was taken or replaced by another one. */
  takePending(row: Pick<UpstreamCredentialRow, 'upstreamId' | 'keyId' | 'pendingLogin'>): Promise<boolean>
  /** Replaces the secrets. @returns `false` if they are not `old` any more. */
  replace(row: UpstreamCredentialRow, old: string): Promise<boolean>
  /** Removes the credential of one key. @returns whether there was one. */
  remove(upstreamId: string, keyId: string): Promise<boolean>
  /** Removes the credentials of all keys, the shared one too. */
  removeAll(upstreamId: string): Promise<void>
}

const ofKey = new Compiled((db) =>
  db.selectFrom('upstreamCredentials').selectAll().where('upstreamId', '=', '').where('keyId', '=', ''),
)

const ofOrg = new Compiled((db) =>
  db
    .selectFrom('upstreamCredentials')
    .innerJoin('upstreams', 'upstreams.id', 'upstreamCredentials.upstreamId')
    .selectAll('upstreamCredentials')
    .where('upstreams.orgId', '=', '')
    .where('upstreamCredentials.secrets', 'is not', null)
    .orderBy('upstreamCredentials.upstreamId')
    .orderBy('upstreamCredentials.keyId')
    .limit(1)
    .$narrowType<{ secrets: string }>(),
)

export const upstreamCredentials = (db: Kysely<Tables>): UpstreamCredentialRows => ({
  get: (upstreamId, keyId) => ofKey.row(db, [upstreamId, keyId]),

  list: (upstreamId) =>
    db.selectFrom('upstreamCredentials').selectAll().where('upstreamId', '=', upstreamId).orderBy('keyId').execute(),

  ofOrg: (orgId, limit) => ofOrg.rows(db, [orgId, limit]),

  async put({ upstreamId, keyId, updatedAt, ...secrets }) {
    await db
      .insertInto('upstreamCredentials')
      .values({ upstreamId, keyId, updatedAt, secrets: null, pendingLogin: null, ...secrets })
      .onConflict((conflict) => conflict.columns(['upstreamId', 'keyId']).doUpdateSet({ updatedAt, ...secrets }))
      .execute()
  },

  async takePending({ upstreamId, keyId, pendingLogin }) {
    const taken = await db
      .updateTable('upstreamCredentials')
      .set({ pendingLogin: null })
      .where('upstreamId', '=', upstreamId)
      .where('keyId', '=', keyId)
      .where('pendingLogin', '=', pendingLogin)
      .executeTakeFirst()
    return taken.numUpdatedRows === 1n
  },

  async replace({ upstreamId, keyId, secrets, updatedAt }, old) {
    const replaced = await db
      .updateTable('upstreamCredentials')
      .set({ secrets, updatedAt })
      .where('upstreamId', '=', upstreamId)
      .where('keyId', '=', keyId)
      .where('secrets', '=', old)
      .executeTakeFirst()
    return replaced.numUpdatedRows === 1n
  },

  async remove(upstreamId, keyId) {
    const removed = await db
      .deleteFrom('upstreamCredentials')
      .where('upstreamId', '=', upstreamId)
      .where('keyId', '=', keyId)
      .executeTakeFirst()
    return removed.numDeletedRows === 1n
  },

  async removeAll(upstreamId) {
    await db.deleteFrom('upstreamCredentials').where('upstreamId', '=', upstreamId).execute()
  },
})
