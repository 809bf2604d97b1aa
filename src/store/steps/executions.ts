import { type Kysely, sql } from 'kysely'
import type { Tables } from '../tables.ts'

/** Adds run history with search filters, stored code and webhook deliveries. */
export async function addExecutions(db: Kysely<Tables>): Promise<void> {
  await db.schema.alterTable('runs').addColumn('threadId', 'text').execute()
  await db.schema
    .alterTable('runs')
    .addColumn('status', 'text', (column) => column.notNull().defaultTo('running'))
    .execute()
  await db.schema
    .alterTable('runs')
    .addColumn('deliveryMode', 'text', (column) => column.notNull().defaultTo('inline'))
    .execute()
  await db.schema
    .alterTable('runs')
    .addColumn('keepsOutput', 'integer', (column) => column.notNull().defaultTo(0))
    .execute()
  await sql`
    update runs set status = case
      when ending = '{"kind":"exited","code":0}' then 'success'
      when ending like '{"kind":"timed_out"%' then 'timeout'
      when ending like '{"kind":"out_of_memory"%' then 'oom'
      when ending like '{"kind":"cancelled"%' then 'cancelled'
      else 'failed' end
    where ending is not null`.execute(db)
  await db.schema
    .createIndex('runsByThread')
    .on('runs')
    .columns(['orgId', 'threadId', 'createdAt'])
    .where('threadId', 'is not', null)
    .execute()
  await db.schema.alterTable('runOutputs').addColumn('order', 'blob').execute()
  await db.schema
    .alterTable('runOutputs')
    .addColumn('withRun', 'integer', (column) => column.notNull().defaultTo(0))
    .execute()
  // Deleting a run deletes all rows that refer to it.
  await db.schema.createIndex('tasksByRun').on('tasks').column('runId').execute()

  await db.schema
    .createTable('runCodes')
    .addColumn('runId', 'text', (column) => column.primaryKey().references('runs.id'))
    .addColumn('code', 'blob', (column) => column.notNull())
    .execute()
  await db.schema
    .createTable('runMetadata')
    .addColumn('runId', 'text', (column) => column.notNull().references('runs.id'))
    .addColumn('orgId', 'text', (column) => column.notNull())
    .addColumn('key', 'text', (column) => column.notNull())
    .addColumn('value', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('runMetadataPrimary', ['runId', 'key'])
    .execute()
  await db.schema
    .createIndex('runMetadataByValue')
    .on('runMetadata')
    .columns(['orgId', 'key', 'value', 'runId'])
    .execute()
  await db.schema
    .createTable('orgSettings')
    .addColumn('orgId', 'text', (column) => column.primaryKey().references('orgs.id'))
    .addColumn('settings', 'text', (column) => column.notNull())
    .execute()
  await db.schema
    .createTable('deliveries')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('runId', 'text', (column) => column.notNull().unique().references('runs.id'))
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('url', 'text', (column) => column.notNull())
    .addColumn('host', 'text', (column) => column.notNull())
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('attempts', 'integer', (column) => column.notNull())
    .addColumn('dueAt', 'text')
    .addColumn('problem', 'text')
    .addColumn('updatedAt', 'text', (column) => column.notNull())
    .execute()
  await db.schema.createIndex('deliveriesByDue').on('deliveries').columns(['status', 'dueAt']).execute()
}
