import { type Kysely, sql } from 'kysely'
import type { Tables } from '../tables.ts'

/** Adds volumes, and the state of threads that are being created or removed. */
export async function addStorage(db: Kysely<Tables>): Promise<void> {
  for (const column of ['state', 'profile'] as const)
    await db.schema.alterTable('threads').addColumn(column, 'text').execute()
  await db.schema.alterTable('threads').addColumn('quotaBytes', 'bigint').execute()
  await db.schema.createIndex('threadsByUse').on('threads').columns(['orgId', 'profile', 'lastUsedAt']).execute()
  await db.schema
    .createIndex('threadsUnsettled')
    .on('threads')
    .columns(['orgId', 'id'])
    .where(sql.ref('state'), 'is not', null)
    .execute()
  await db.schema
    .createTable('volumes')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('slug', 'text', (column) => column.notNull())
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('quotaBytes', 'bigint', (column) => column.notNull())
    .addColumn('quotaFiles', 'bigint', (column) => column.notNull())
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('removingAt', 'text')
    .addUniqueConstraint('volumesBySlug', ['orgId', 'slug'])
    .execute()
  await db.schema
    .createIndex('volumesRemoving')
    .on('volumes')
    .column('id')
    .where(sql.ref('removing_at'), 'is not', null)
    .execute()
}
