import type { Kysely } from 'kysely'
import { Refusal } from '../base/errors.ts'
import type { Tables } from './tables.ts'

/** Time after which a client may retry. Storage stays full until something is deleted. */
const retryAfterSeconds = 60

/** The tables whose rows have a filesystem each. */
const stored = ['threads', 'volumes', 'sandboxes', 'upstreamSandboxes', 'packageLayers'] as const

/**
 * Enforces the storage limit of an organization after a write that increased the sum of its quotas. Must be called in the
 * transaction of that write, so that a refusal rolls it back and no other call sees a state in between.
 * @throws Refusal limit_reached.
 */
export async function requireStorageRoom(db: Kysely<Tables>, orgId: string): Promise<void> {
  const row = await db.selectFrom('limits').select('amounts').where('ownerId', '=', orgId).executeTakeFirst()
  const { storage_bytes: amount } = JSON.parse(row?.amounts ?? '{}') as { storage_bytes?: number }
  if (amount === undefined) return
  let keptBytes = 0
  for (const of of stored) keptBytes += await quotaBytesOf(db, of, orgId)
  if (keptBytes > amount) {
    throw new Refusal('limit_reached', { owner: 'org', limit: 'storage_bytes', amount, retryAfterSeconds })
  }
}

/** Returns the sum of the quotas of all threads, volumes, sandboxes, sandboxes of upstreams or packages of an organization, in bytes. */
export async function quotaBytesOf(db: Kysely<Tables>, of: (typeof stored)[number], orgId: string): Promise<number> {
  const sum = await db
    .selectFrom(of)
    .select((select) => select.fn.sum<number | string | null>('quotaBytes').as('bytes'))
    .where('orgId', '=', orgId)
    .executeTakeFirst()
  return Number(sum?.bytes ?? 0)
}
