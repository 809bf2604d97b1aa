import type { Kysely } from 'kysely'
import type { Tables } from '../tables.ts'

/** Adds the images of runs, which are stored as long as their output. */
export async function addRunImages(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('runImages')
    .addColumn('runId', 'text', (column) => column.notNull().references('runs.id'))
    .addColumn('position', 'integer', (column) => column.notNull())
    .addColumn('mimeType', 'text', (column) => column.notNull())
    .addColumn('bytes', 'blob', (column) => column.notNull())
    .addColumn('endedAt', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('runImagesPrimary', ['runId', 'position'])
    .execute()
  await db.schema.createIndex('runImagesByEnd').on('runImages').column('endedAt').execute()
}
