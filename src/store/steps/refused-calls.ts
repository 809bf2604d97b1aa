import type { Kysely } from 'kysely'
import type { Tables } from '../tables.ts'

/** Adds the number of refused calls per day and key. */
export async function addRefusedCalls(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .alterTable('usage')
    .addColumn('refused', 'bigint', (column) => column.notNull().defaultTo(0))
    .execute()
}
