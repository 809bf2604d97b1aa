import type { Kysely } from 'kysely'
import { Compiled } from './compiled.ts'
import type { Tables } from './tables.ts'

/** A secret that the broker puts into requests of runs and sandboxes of an organization. */
export interface NetworkSecretRow {
  orgId: string
  name: string
  placeholder: string
  /** JSON: hosts, as `parseSecretHost` reads them. */
  hosts: string
  /** JSON: where in a request. */
  places: string
  /** Sealed. */
  value: string
  /** The end of the value, for people. */
  hint: string
  createdAt: string
  updatedAt: string
}

declare module './tables.ts' {
  interface Tables {
    networkSecrets: NetworkSecretRow
  }
}

export interface NetworkSecretRows {
  /** Lists the secrets of an organization by name. */
  page(orgId: string, afterName: string, limit: number): Promise<NetworkSecretRow[]>
  get(orgId: string, name: string): Promise<NetworkSecretRow | undefined>
  ofNames(orgId: string, names: readonly string[]): Promise<NetworkSecretRow[]>
  count(orgId: string): Promise<number>
  /** Creates a secret, or replaces all of it except its placeholder and the time of its creation. */
  put(row: NetworkSecretRow): Promise<void>
  /** Returns whether there was one. */
  remove(orgId: string, name: string): Promise<boolean>
}

const page = new Compiled((db) =>
  db.selectFrom('networkSecrets').selectAll().where('orgId', '=', '').where('name', '>', '').orderBy('name').limit(1),
)

export const networkSecrets = (db: Kysely<Tables>): NetworkSecretRows => ({
  page: (orgId, afterName, limit) => page.rows(db, [orgId, afterName, limit]),

  get: (orgId, name) =>
    db.selectFrom('networkSecrets').selectAll().where('orgId', '=', orgId).where('name', '=', name).executeTakeFirst(),

  async ofNames(orgId, names) {
    if (names.length === 0) return []
    return db
      .selectFrom('networkSecrets')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('name', 'in', names)
      .orderBy('name')
      .execute()
  },

  async count(orgId) {
    const row = await db
      .selectFrom('networkSecrets')
      .select((select) => select.fn.countAll<number>().as('count'))
      .where('orgId', '=', orgId)
      .executeTakeFirst()
    return Number(row?.count ?? 0)
  },

  async put(row) {
    const { hosts, places, value, hint, updatedAt } = row
    await db
      .insertInto('networkSecrets')
      .values(row)
      .onConflict((conflict) =>
        conflict.columns(['orgId', 'name']).doUpdateSet({ hosts, places, value, hint, updatedAt }),
      )
      .execute()
  },

  async remove(orgId, name) {
    const removed = await db
      .deleteFrom('networkSecrets')
      .where('orgId', '=', orgId)
      .where('name', '=', name)
      .executeTakeFirst()
    return removed.numDeletedRows === 1n
  },
})

/** Adds the secrets of organizations for the network. */
export async function addNetworkSecrets(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('networkSecrets')
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('placeholder', 'text', (column) => column.notNull())
    .addColumn('hosts', 'text', (column) => column.notNull())
    .addColumn('places', 'text', (column) => column.notNull())
    .addColumn('value', 'text', (column) => column.notNull())
    .addColumn('hint', 'text', (column) => column.notNull())
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('updatedAt', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('networkSecretsPrimary', ['orgId', 'name'])
    .execute()
}
