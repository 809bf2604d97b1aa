import type { Kysely } from 'kysely'
import type { Tables } from '../tables.ts'

/** Adds settings of keys, profiles of organizations, limits, admin tokens and usage. */
export async function addAdmin(db: Kysely<Tables>): Promise<void> {
  for (const column of ['expiresAt', 'env', 'tools', 'previousHash', 'previousUntil'] as const) {
    await db.schema.alterTable('keys').addColumn(column, 'text').execute()
  }
  await db.schema.createIndex('keysByPreviousHash').on('keys').column('previousHash').execute()
  await db.schema
    .createTable('storedProfiles')
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('settings', 'text', (column) => column.notNull())
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('updatedAt', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('storedProfilesPrimary', ['orgId', 'name'])
    .execute()
  await db.schema
    .createTable('limits')
    .addColumn('ownerId', 'text', (column) => column.primaryKey())
    .addColumn('amounts', 'text', (column) => column.notNull())
    .execute()
  await db.schema
    .createTable('adminTokens')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('role', 'text', (column) => column.notNull())
    .addColumn('orgId', 'text', (column) => column.references('orgs.id'))
    .addColumn('secretHash', 'text', (column) => column.notNull().unique())
    .addColumn('prefix', 'text', (column) => column.notNull())
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('expiresAt', 'text')
    .addColumn('revokedAt', 'text')
    .execute()
  await db.schema
    .createTable('usage')
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('day', 'text', (column) => column.notNull())
    .addColumn('keyId', 'text', (column) => column.notNull().references('keys.id'))
    .addColumn('runs', 'bigint', (column) => column.notNull())
    .addColumn('runMs', 'bigint', (column) => column.notNull())
    .addColumn('cpuMs', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('usagePrimary', ['orgId', 'day', 'keyId'])
    .execute()
}
