import { Refusal } from '../../base/errors.ts'
import type { Store } from '../../store/store.ts'
import type { UsageLimits } from '../access/usage-limiter.ts'

/** Time after which a client may retry. Storage stays full until something is deleted. */
const retryAfterSeconds = 60

/**
 * Checks the storage limit of an organization early, so that a call beyond the limit writes nothing. The store enforces it
 * in the transaction that creates or enlarges a thread, a volume or the disk of a sandbox.
 * @param addedBytes increase of the sum of its quotas.
 * @throws Refusal limit_reached.
 */
export async function requireStorageRoom(
  store: Pick<Store, 'limits' | 'threads' | 'volumes' | 'sandboxes' | 'upstreamSandboxes' | 'packageLayers'>,
  orgId: string,
  addedBytes: number,
): Promise<void> {
  if (addedBytes <= 0) return
  const { storage_bytes: amount } = JSON.parse((await store.limits.get(orgId)) ?? '{}') as UsageLimits
  if (amount === undefined) return
  const { threads, volumes, sandboxes, upstreamSandboxes, packageLayers } = store
  const stored = [threads, volumes, sandboxes, upstreamSandboxes, packageLayers]
  const quotas = await Promise.all(stored.map((rows) => rows.quotaBytes(orgId)))
  const keptBytes = quotas.reduce((sum, bytes) => sum + bytes, 0)
  if (keptBytes + addedBytes > amount) {
    throw new Refusal('limit_reached', { owner: 'org', limit: 'storage_bytes', amount, retryAfterSeconds })
  }
}
