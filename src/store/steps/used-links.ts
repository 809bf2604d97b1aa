import type { Kysely } from 'kysely'
import type { Tables } from '../tables.ts'

/** Adds the IDs of single-use links that were used. */
export async function addUsedLinks(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('usedLinks')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('expiresAt', 'text', (column) => column.notNull())
    .execute()
}
