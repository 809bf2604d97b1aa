import type { Kysely } from 'kysely'
import { noHash } from '../audit-chain.ts'
import type { Tables } from '../tables.ts'

/** Adds the audit log, and the subjects of runs and threads. */
export async function addAudit(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('audit')
    .addColumn('seq', 'bigint', (column) => column.primaryKey())
    .addColumn('at', 'text', (column) => column.notNull())
    .addColumn('orgId', 'text')
    .addColumn('actor', 'text', (column) => column.notNull())
    .addColumn('action', 'text', (column) => column.notNull())
    .addColumn('target', 'text', (column) => column.notNull())
    .addColumn('details', 'text', (column) => column.notNull())
    .addColumn('personalDigest', 'text')
    .addColumn('hash', 'text', (column) => column.notNull())
    // Erasable personal data: the hash covers only its digest.
    .addColumn('subject', 'text')
    .addColumn('salt', 'text')
    .addColumn('personal', 'text')
    .execute()
  await db.schema
    .createIndex('auditBySubject')
    .on('audit')
    .columns(['orgId', 'subject', 'seq'])
    .where('subject', 'is not', null)
    .execute()
  await db.schema.createIndex('auditByOrg').on('audit').columns(['orgId', 'seq']).execute()
  await db.schema
    .createTable('auditHead')
    .addColumn('id', 'integer', (column) => column.primaryKey())
    .addColumn('seq', 'bigint', (column) => column.notNull())
    .addColumn('hash', 'text', (column) => column.notNull())
    .execute()
  await db.insertInto('auditHead').values({ id: 1, seq: 0, hash: noHash }).execute()

  await db.schema.alterTable('runs').addColumn('subject', 'text').execute()
  await db.schema.alterTable('runs').addColumn('envNames', 'text').execute()
  await db.schema.createIndex('runsBySubject').on('runs').columns(['orgId', 'subject', 'createdAt']).execute()
  await db.schema.alterTable('threads').addColumn('subject', 'text').execute()
  await db.schema.createIndex('threadsBySubject').on('threads').columns(['orgId', 'subject']).execute()
}
