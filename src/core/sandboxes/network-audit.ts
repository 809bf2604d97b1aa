import { timestamp } from '../../base/clock.ts'
import { totalsOf } from '../../base/network-uses.ts'
import type { SandboxStatus } from '../../base/sandbox.ts'
import type { Store } from '../../store/store.ts'

/** Writes the audit line about all connections of a sandbox that has ended, which may be removed already. */
export async function recordNetwork(
  store: Store,
  { sandboxId, orgId }: SandboxStatus,
  { keyId, uses }: NonNullable<SandboxStatus['network']>,
): Promise<void> {
  const program = await store.upstreamSandboxes.byId(sandboxId)
  const packages = program === undefined && (await store.packageLayers.byId(sandboxId)) !== undefined
  const line = {
    ...{ at: timestamp(), orgId, actor: keyId },
    action: program ? 'upstream.network' : packages ? 'packages.network' : 'sandbox.network',
    target: program?.upstreamId ?? sandboxId,
    details: { network: totalsOf(uses) },
    personal: { network: uses },
    subject: null,
  }
  await store.audited(line, async () => undefined)
}
