import type { Cleanup } from '../../base/cleanup.ts'
import type { Limits, RunThread } from '../../base/run.ts'
import type { SandboxSpec } from '../../base/sandbox.ts'
import type { OpenNetwork, Trust } from '../../egress/client.ts'
import type { SandboxJail } from '../../engine/sandboxes/sandbox-jail.ts'
import type { Slot } from '../../engine/slots/slot.ts'
import type { Mounted } from '../../storage/filesystems.ts'
import { trustFor } from '../network-trust.ts'
import { dockFor } from '../runs/slot-mounts.ts'
import type { ThreadClaim } from '../storage/thread-claims.ts'
import type { SandboxHost } from './sandbox-host.ts'
import { networkOf } from './sandbox-network.ts'

/** Entries of the dock. */
const diskEntry = 'disk'
const imageEntry = 'image'
/** Known to the guest; an earlier state of the disk is attached here. */
export const stateEntry = 'states'

/** What a sandbox needs of the limits of a run, whose other limits do not apply to it. */
const limitsOf = (limits: SandboxSpec['limits']): Limits => ({
  ...limits,
  homeBytes: 0,
  outputSoftBytes: 0,
  outputHardBytes: 0,
  timeoutMs: 0,
})

/** What a sandbox consists of while it lives. */
export interface SandboxParts {
  slot: Slot
  disk: Mounted
  jail: SandboxJail
  network: OpenNetwork | undefined
  /** Present if it has secrets. */
  trust: Trust | undefined
  /** Variables of the image. */
  env: Readonly<Record<string, string>>
}

/**
 * Mounts its disk, made first if need be, binds a slot to it and makes its jail. Releases are added to `undo`.
 * @throws Refusal image_unknown, disk_unavailable, volume_unknown, unavailable.
 */
export async function openSandboxParts(spec: SandboxSpec, host: SandboxHost, undo: Cleanup): Promise<SandboxParts> {
  const { storage } = host
  await storage.watch.requireFor(spec.orgId)
  const id = { area: 'sandboxes', org: spec.orgId, name: spec.sandboxId } as const
  const workspace = spec.workspace === undefined ? undefined : host.workspaces.get(spec.workspace)
  const hasVolumes = workspace !== undefined || (spec.volumes?.length ?? 0) > 0
  const volumes = hasVolumes ? storage.volumes.claim(spec, spec.volumes ?? []) : undefined
  if (volumes) {
    undo.add(() => volumes.release())
    await volumes.mount()
  }
  const thread = spec.thread && claimThread(spec.thread, spec, host, undo)
  await thread?.mount()
  // The disk is mounted while the slot gets its image. What is registered first is released last: after the slot.
  const mounting = storage.mounts.acquire(id, spec.disk)
  undo.add(async () => (await mounting.catch(() => undefined))?.release())
  // Other users of the machine could use such files of the owner of the directory.
  const forbidsSetId = workspace?.mode === 'read-write'
  // A spare interpreter has the files of the default image, and no further filter.
  const takesSpare = spec.image === undefined && !forbidsSetId
  const { slot, env } = await slotWithImage(spec, host, takesSpare, undo)
  const { mounted } = await mounting
  const dock = await dockFor(slot, [mounted])
  await slot.mounting(async () => {
    await dock.attach(mounted, { initPid: slot.pid, name: diskEntry, readOnly: false })
    await dock.makePlace(stateEntry)
  })
  const others = workspace ? [host.workspaces.mountOf(workspace, mounted, slot.pid)] : []
  const docked = volumes && (await slot.mounting(() => volumes.attach(slot, others)))
  const trust = await trustFor(spec.network, spec.sandboxId, host.egress)
  const network = networkOf(spec, host.egress, trust, undo)
  const jail = slot.openSandbox({
    rootDisk: diskEntry,
    rootImage: imageEntry,
    limits: spec.limits,
    network,
    ...(docked !== undefined && { volumes: docked }),
    ...(thread && { dock: await slot.mounting(() => thread.attach(slot)) }),
    forbidsSetId,
    takesSpare,
  })
  return { slot, disk: mounted, jail, network, trust, env }
}

/** @throws Refusal thread_busy while a run has the thread. */
function claimThread(thread: RunThread, spec: SandboxSpec, { storage }: SandboxHost, undo: Cleanup): ThreadClaim {
  const claim = storage.threads.claim(spec, thread)
  undo.add(async () => {
    claim.wrote()
    await claim.release()
  })
  return claim
}

/** Binds a slot and attaches the image. @throws Refusal image_unknown, unavailable. */
async function slotWithImage(
  spec: SandboxSpec,
  host: SandboxHost,
  takesSpare: boolean,
  undo: Cleanup,
): Promise<Pick<SandboxParts, 'slot' | 'env'>> {
  const { parts, env } = undo.owns(await host.imageOf(spec.image))
  const { slot } = undo.owns(await host.pool.acquireForSandbox(limitsOf(spec.limits), takesSpare))
  const dock = await dockFor(slot, [])
  await slot.mounting(() => dock.attachImage(imageEntry, slot.pid, parts))
  return { slot, env }
}
