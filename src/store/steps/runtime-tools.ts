import type { Kysely } from 'kysely'
import type { Tables } from '../tables.ts'

/** Adds the runtime tools that an admin token is limited to. */
export async function addRuntimeTools(db: Kysely<Tables>): Promise<void> {
  await db.schema.alterTable('adminTokens').addColumn('runtimeTools', 'text').execute()
}
