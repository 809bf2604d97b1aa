import { Refusal } from '../../base/errors.ts'
import type { Store } from '../../store/store.ts'
import type { UsageLimits } from '../access/usage-limiter.ts'

/** Time after which a client may retry. Storage stays full until something is deleted. */
const retryAfterSeconds = 60

/**
 * Checks the storage limit of an organization early, so that a call beyond the limit writes nothing. The store enforces it
 * in the transaction that creates or enlarges a thread or a volume.
 * @param addedBytes increase of the sum of its quotas.
 * @throws Refusal limit_reached.
 */
export async function requireStorageRoom(
  { limits, threads, volumes }: Pick<Store, 'limits' | 'threads' | 'volumes'>,
  orgId: string,
  addedBytes: number,
): Promise<void> {
  if (addedBytes <= 0) return
  const { storage_bytes: amount } = JSON.parse((await limits.get(orgId)) ?? '{}') as UsageLimits
  if (amount === undefined) return
  const keptBytes = (await threads.quotaBytes(orgId)) + (await volumes.quotaBytes(orgId))
  if (keptBytes + addedBytes > amount) {
    throw new Refusal('limit_reached', { owner: 'org', limit: 'storage_bytes', amount, retryAfterSeconds })
  }
}
