import type { Kysely } from 'kysely'
import type { Tables } from '../tables.ts'

/** Calls that were refused are counted per day and key, instead of stored one by one. */
export async function addRefusedCalls(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .alterTable('usage')
    .addColumn('refused', 'bigint', (column) => column.notNull().defaultTo(0))
    .execute()
}
