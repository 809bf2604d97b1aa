import type { Kysely } from 'kysely'
import { quotaBytesOf, requireStorageRoom } from './storage-limit.ts'
import type { Tables } from './tables.ts'

declare module './tables.ts' {
  interface Tables {
    upstreamSandboxes: UpstreamSandboxRow
  }
}

/** The sandbox of an upstream that is a program. It is not a named sandbox, so no key can use it. */
export interface UpstreamSandboxRow {
  /** Also names its disk on the runner. */
  id: string
  orgId: string
  upstreamId: string
  /** The key whose credential its programs have; empty for that of the organization. */
  keyId: string
  /** Quota of its disk, in bytes. */
  quotaBytes: number
  /** Digest of the program that is installed on its disk; `null` if none is. */
  installed: string | null
  createdAt: string
  /** The process, of those that use the database, that installs its program; `null` if none does. */
  installer: string | null
  /** Until when, unless it asks for more time. */
  installerUntil: string | null
  /** The installation that is in progress, or the latest one if it has failed, as JSON; otherwise `null`. */
  installation: string | null
}

export interface UpstreamSandboxRows {
  /** Inserts a row. @returns `false` if the upstream has one for this credential. @throws Refusal limit_reached. */
  create(row: Omit<UpstreamSandboxRow, 'installer' | 'installerUntil' | 'installation'>): Promise<boolean>
  get(upstreamId: string, keyId: string): Promise<UpstreamSandboxRow | undefined>
  byId(id: string): Promise<UpstreamSandboxRow | undefined>
  /** Lists the rows of all organizations. */
  list(): Promise<UpstreamSandboxRow[]>
  /** Lists those whose upstream, or the credential of whose key, does not exist any more. */
  orphans(): Promise<UpstreamSandboxRow[]>
  /** @throws Refusal limit_reached if its quota grows beyond the limit of the organization. */
  update(
    id: string,
    changes: Partial<Pick<UpstreamSandboxRow, 'installed' | 'installation' | 'quotaBytes'>>,
  ): Promise<void>
  /**
   * Makes a process the one that installs the program, or gives it more time.
   * @returns `false` if another one is, or the row does not exist.
   */
  beginInstalling(id: string, installer: string, at: string, until: string): Promise<boolean>
  endInstalling(id: string, installer: string): Promise<void>
  remove(id: string): Promise<void>
  quotaBytes(orgId: string): Promise<number>
}

/** Adds upstreams that are programs. */
export async function addUpstreamPrograms(db: Kysely<Tables>): Promise<void> {
  await db.schema.alterTable('upstreams').addColumn('program', 'text').execute()
  await db.schema
    .createTable('upstreamSandboxes')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('upstreamId', 'text', (column) => column.notNull())
    .addColumn('keyId', 'text', (column) => column.notNull())
    .addColumn('quotaBytes', 'bigint', (column) => column.notNull())
    .addColumn('installed', 'text')
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addUniqueConstraint('upstreamSandboxesByCredential', ['upstreamId', 'keyId'])
    .execute()
}

/** Adds which process installs a program. */
export async function addUpstreamInstallers(db: Kysely<Tables>): Promise<void> {
  await db.schema.alterTable('upstreamSandboxes').addColumn('installer', 'text').execute()
  await db.schema.alterTable('upstreamSandboxes').addColumn('installerUntil', 'text').execute()
}

/** Adds what an installation does. */
export async function addUpstreamInstallations(db: Kysely<Tables>): Promise<void> {
  await db.schema.alterTable('upstreamSandboxes').addColumn('installation', 'text').execute()
}

export const upstreamSandboxes = (db: Kysely<Tables>): UpstreamSandboxRows => ({
  create: (row) =>
    db.transaction().execute(async (transaction) => {
      const inserted = await transaction
        .insertInto('upstreamSandboxes')
        .values({ ...row, installer: null, installerUntil: null, installation: null })
        .onConflict((conflict) => conflict.columns(['upstreamId', 'keyId']).doNothing())
        .executeTakeFirst()
      if (inserted.numInsertedOrUpdatedRows !== 1n) return false
      await requireStorageRoom(transaction, row.orgId)
      return true
    }),

  get: (upstreamId, keyId) =>
    db
      .selectFrom('upstreamSandboxes')
      .selectAll()
      .where('upstreamId', '=', upstreamId)
      .where('keyId', '=', keyId)
      .executeTakeFirst(),

  byId: (id) => db.selectFrom('upstreamSandboxes').selectAll().where('id', '=', id).executeTakeFirst(),

  list: () => db.selectFrom('upstreamSandboxes').selectAll().orderBy('id').execute(),

  orphans: () =>
    db
      .selectFrom('upstreamSandboxes as sandbox')
      .leftJoin('upstreams', 'upstreams.id', 'sandbox.upstreamId')
      .leftJoin('upstreamCredentials as credential', (join) =>
        join.onRef('credential.upstreamId', '=', 'sandbox.upstreamId').onRef('credential.keyId', '=', 'sandbox.keyId'),
      )
      .selectAll('sandbox')
      .where((where) =>
        where.or([
          where('upstreams.id', 'is', null),
          where('upstreams.transport', '!=', 'stdio'),
          where.and([where('sandbox.keyId', '!=', ''), where('credential.keyId', 'is', null)]),
        ]),
      )
      .execute(),

  update: (id, changes) =>
    db.transaction().execute(async (transaction) => {
      await transaction.updateTable('upstreamSandboxes').set(changes).where('id', '=', id).execute()
      if (changes.quotaBytes === undefined) return
      const row = await transaction
        .selectFrom('upstreamSandboxes')
        .select('orgId')
        .where('id', '=', id)
        .executeTakeFirst()
      if (row) await requireStorageRoom(transaction, row.orgId)
    }),

  async beginInstalling(id, installer, at, until) {
    const taken = await db
      .updateTable('upstreamSandboxes')
      .set({ installer, installerUntil: until })
      .where('id', '=', id)
      .where((where) =>
        where.or([
          where('installer', 'is', null),
          where('installer', '=', installer),
          where('installerUntil', '<', at),
        ]),
      )
      .executeTakeFirst()
    return taken.numUpdatedRows === 1n
  },

  async endInstalling(id, installer) {
    await db
      .updateTable('upstreamSandboxes')
      .set({ installer: null, installerUntil: null })
      .where('id', '=', id)
      .where('installer', '=', installer)
      .execute()
  },

  async remove(id) {
    await db.deleteFrom('upstreamSandboxes').where('id', '=', id).execute()
  },

  quotaBytes: (orgId) => quotaBytesOf(db, 'upstreamSandboxes', orgId),
})
