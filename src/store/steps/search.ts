import { type Kysely, sql } from 'kysely'
import type { Tables } from '../tables.ts'

/** Adds indexes with which every search of runs finds its rows in the order of the page. */
export async function addSearch(db: Kysely<Tables>): Promise<void> {
  await db.schema.createIndex('runsByStatus').on('runs').columns(['orgId', 'status', 'createdAt']).execute()
  await db.schema
    .alterTable('runMetadata')
    .addColumn('createdAt', 'text', (column) => column.notNull().defaultTo(''))
    .execute()
  await sql`update run_metadata set created_at = (select created_at from runs where runs.id = run_metadata.run_id)`.execute(
    db,
  )
  await db.schema.dropIndex('runMetadataByValue').execute()
  await db.schema
    .createIndex('runMetadataByValue')
    .on('runMetadata')
    .columns(['orgId', 'key', 'value', 'createdAt', 'runId'])
    .execute()
  // Output that is kept with its run is not deleted by its age.
  await db.schema.dropIndex('runOutputsByEnd').execute()
  await db.schema
    .createIndex('runOutputsByEnd')
    .on('runOutputs')
    .column('endedAt')
    .where(sql.ref('with_run'), '=', 0)
    .execute()
}
