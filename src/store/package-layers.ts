import type { Kysely } from 'kysely'
import { quotaBytesOf, requireStorageRoom } from './storage-limit.ts'
import type { Tables } from './tables.ts'

declare module './tables.ts' {
  interface Tables {
    packageLayers: PackageLayerRow
  }
}

/** The packages of a profile, installed for an organization on a volume that is no named one. */
export interface PackageLayerRow {
  /** Names its volume on the runner, and the sandbox that installs it. Each attempt has another one. */
  id: string
  orgId: string
  /** Digest of what is installed: packages, image and network. */
  content: string
  /** Name of the profile that needed it first. */
  profile: string
  /** Quota of its volume, in bytes; 0 if it has none. */
  quotaBytes: number
  state: 'building' | 'ready' | 'failed'
  /** Why the latest attempt failed. */
  problem: string | null
  /** Attempts that have failed in a row. */
  failures: number
  /** When the next attempt may begin, after a failed one. */
  retryAt: string | null
  createdAt: string
}

export interface PackageLayerRows {
  get(orgId: string, content: string): Promise<PackageLayerRow | undefined>
  byId(id: string): Promise<PackageLayerRow | undefined>
  /** Lists the rows of all organizations. */
  list(): Promise<PackageLayerRow[]>
  /** Returns the names of profiles, of all organizations, whose packages could not be installed; at most `limit`. */
  failedProfiles(limit: number): Promise<string[]>
  /** Inserts a row, or replaces that of an earlier attempt. @throws Refusal limit_reached. */
  begin(row: PackageLayerRow): Promise<void>
  update(id: string, changes: Partial<PackageLayerRow>): Promise<void>
  remove(id: string): Promise<void>
  quotaBytes(orgId: string): Promise<number>
}

/** Adds installed packages of profiles. */
export async function addPackageLayers(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('packageLayers')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('content', 'text', (column) => column.notNull())
    .addColumn('profile', 'text', (column) => column.notNull())
    .addColumn('quotaBytes', 'bigint', (column) => column.notNull())
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('problem', 'text')
    .addColumn('failures', 'integer', (column) => column.notNull())
    .addColumn('retryAt', 'text')
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addUniqueConstraint('packageLayersByContent', ['orgId', 'content'])
    .execute()
}

export const packageLayers = (db: Kysely<Tables>): PackageLayerRows => ({
  get: (orgId, content) =>
    db
      .selectFrom('packageLayers')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('content', '=', content)
      .executeTakeFirst(),

  byId: (id) => db.selectFrom('packageLayers').selectAll().where('id', '=', id).executeTakeFirst(),

  list: () => db.selectFrom('packageLayers').selectAll().orderBy('id').execute(),

  failedProfiles: async (limit) => {
    const failed = db.selectFrom('packageLayers').select('profile').where('state', '=', 'failed')
    return (await failed.orderBy('id').limit(limit).execute()).map(({ profile }) => profile)
  },

  begin: (row) =>
    db.transaction().execute(async (transaction) => {
      await transaction
        .deleteFrom('packageLayers')
        .where('orgId', '=', row.orgId)
        .where('content', '=', row.content)
        .execute()
      await transaction.insertInto('packageLayers').values(row).execute()
      await requireStorageRoom(transaction, row.orgId)
    }),

  async update(id, changes) {
    await db.updateTable('packageLayers').set(changes).where('id', '=', id).execute()
  },

  async remove(id) {
    await db.deleteFrom('packageLayers').where('id', '=', id).execute()
  },

  quotaBytes: (orgId) => quotaBytesOf(db, 'packageLayers', orgId),
})
