import type { Kysely } from 'kysely'
import type { Tables } from '../tables.ts'

/** Adds an index to count the pending deliveries of an organization, which each new delivery requires. */
export async function addDeliveriesByOrg(db: Kysely<Tables>): Promise<void> {
  await db.schema.createIndex('deliveriesByOrg').on('deliveries').columns(['orgId', 'status']).execute()
}
