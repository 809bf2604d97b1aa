import type { Kysely } from 'kysely'
import { Refusal } from '../base/errors.ts'
import { liveStates, type SandboxRow } from './sandbox-rows.ts'
import type { Tables } from './tables.ts'

/** Limits for the sandboxes of an organization or a key. An absent one does not apply. */
export interface SandboxLimitAmounts {
  /** Sandboxes that run or are paused at the same time. */
  sandboxes?: number
  /** Sum of their memory limits, in bytes. */
  sandbox_memory_bytes?: number
  /** Sum of the disk quotas of all sandboxes, stopped ones included, in bytes. */
  sandbox_disk_bytes?: number
}

/** Stored sandboxes of one organization: each has a row and a disk, also while it is stopped. */
const storedMax = 1_000
/** Running sandboxes of an organization for which no limit is set: a loop that never stops them must end somewhere. */
const runningDefaultMax = 64
/** Time after which a client may retry. A place becomes free when a sandbox stops. */
const retryAfterSeconds = 5

/**
 * Enforces the limits of an organization and a key after a write that started a sandbox. Must be called in the
 * transaction of that write, so that a refusal rolls it back and concurrent starts are counted one after the other.
 * @throws Refusal limit_reached, sandboxes_full.
 */
export async function requireSandboxRoom(
  db: Kysely<Tables>,
  { orgId, keyId }: Pick<SandboxRow, 'orgId' | 'keyId'>,
): Promise<void> {
  await requireRoomOf(db, 'org', orgId, { sandboxes: runningDefaultMax, ...(await amountsOf(db, orgId)) })
  await requireRoomOf(db, 'key', keyId, await amountsOf(db, keyId))
  if ((await usedBy(db, 'org', orgId)).stored > storedMax) throw new Refusal('sandboxes_full', { limit: storedMax })
}

async function amountsOf(db: Kysely<Tables>, ownerId: string): Promise<SandboxLimitAmounts> {
  const row = await db.selectFrom('limits').select('amounts').where('ownerId', '=', ownerId).executeTakeFirst()
  return JSON.parse(row?.amounts ?? '{}') as SandboxLimitAmounts
}

async function requireRoomOf(
  db: Kysely<Tables>,
  owner: 'org' | 'key',
  ownerId: string,
  amounts: SandboxLimitAmounts,
): Promise<void> {
  const { sandboxes, sandbox_memory_bytes: memoryBytes, sandbox_disk_bytes: diskBytes } = amounts
  if (sandboxes === undefined && memoryBytes === undefined && diskBytes === undefined) return
  const used = await usedBy(db, owner, ownerId)
  const check = (limit: keyof SandboxLimitAmounts, amount: number | undefined, is: number) => {
    if (amount === undefined || is <= amount) return
    throw new Refusal('limit_reached', { owner, limit, amount, retryAfterSeconds })
  }
  check('sandboxes', sandboxes, used.live)
  check('sandbox_memory_bytes', memoryBytes, used.memoryBytes)
  check('sandbox_disk_bytes', diskBytes, used.diskBytes)
}

/** Returns what the sandboxes of an organization or key use, or reserve. */
async function usedBy(db: Kysely<Tables>, owner: 'org' | 'key', ownerId: string) {
  const rows = await db
    .selectFrom('sandboxes')
    .select((select) => [
      'state',
      select.fn.countAll<number | string>().as('count'),
      select.fn.sum<number | string>('memoryBytes').as('memoryBytes'),
      select.fn.sum<number | string>('quotaBytes').as('quotaBytes'),
    ])
    .where(owner === 'org' ? 'orgId' : 'keyId', '=', ownerId)
    .groupBy('state')
    .execute()
  const live = rows.filter(({ state }) => liveStates.includes(state))
  const sum = (of: typeof rows, field: 'count' | 'memoryBytes' | 'quotaBytes') =>
    of.reduce((total, row) => total + Number(row[field]), 0)
  return {
    live: sum(live, 'count'),
    memoryBytes: sum(live, 'memoryBytes'),
    stored: sum(rows, 'count'),
    diskBytes: sum(rows, 'quotaBytes'),
  }
}
