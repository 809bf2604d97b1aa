import type { Kysely } from 'kysely'
import type { Tables } from '../tables.ts'

/** How many endings an org still has to be told is counted with each one that is added. */
export async function addDeliveriesByOrg(db: Kysely<Tables>): Promise<void> {
  await db.schema.createIndex('deliveriesByOrg').on('deliveries').columns(['orgId', 'status']).execute()
}
