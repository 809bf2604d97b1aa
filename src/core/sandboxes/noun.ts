import type { Timers } from '../../base/background-job.ts'
import type { GuardedNoun, Rights } from '../access/rights.ts'
import type { Caller } from '../caller.ts'
import { SandboxControl } from '../runtime/sandbox-control.ts'
import type { TransferPlaces } from '../storage/transfer-places.ts'
import { SandboxCode, sandboxCodeNeeds } from './code.ts'
import { SandboxFiles, sandboxFileNeeds } from './files.ts'
import { type SandboxDeps, SandboxLifecycle } from './lifecycle.ts'
import { SandboxNetworks } from './networks.ts'
import { PreviewAddresses } from './ports/address.ts'
import { PreviewConnections } from './ports/connections.ts'
import { SandboxPorts, sandboxPortNeeds } from './ports/ports.ts'
import { Previews } from './ports/previews.ts'
import type { PreviewLimits } from './ports/traffic.ts'
import { SandboxProcesses, sandboxProcessNeeds } from './processes.ts'
import { SandboxReaper } from './reaper.ts'
import { systemActor } from './sandbox-rows.ts'
import { Sandboxes, sandboxNeeds } from './sandboxes.ts'
import { SandboxWatch } from './watch.ts'

/** The operations on named sandboxes. */
export interface SandboxVerbs {
  readonly sandboxes: GuardedNoun<Sandboxes, typeof sandboxNeeds>
  /** Commands and background processes in sandboxes. */
  readonly sandboxProcesses: GuardedNoun<SandboxProcesses, typeof sandboxProcessNeeds>
  readonly sandboxFiles: GuardedNoun<SandboxFiles, typeof sandboxFileNeeds>
  /** Ports of sandboxes that are reached through the server. */
  readonly sandboxPorts: GuardedNoun<SandboxPorts, typeof sandboxPortNeeds>
  /** For visitors of published ports, who need no key. */
  readonly previews: Pick<Previews, 'find' | 'admissionOf' | 'admissionBy' | 'connect' | 'size'>
  /** Stateful code in sandboxes. */
  readonly sandboxCode: GuardedNoun<SandboxCode, typeof sandboxCodeNeeds>
}

/** Everything that belongs to named sandboxes. */
export interface SandboxNoun {
  verbs: SandboxVerbs
  /** For operations that use sandboxes as their place. */
  lifecycle: SandboxLifecycle
  /** For administrators of the instance. */
  control: SandboxControl
  start(): void
  stop(): Promise<void>
  /** Stops the sandboxes that a revoked key started, and ends the ports that it published. */
  retireKey(keyId: string): Promise<void>
}

export interface SandboxNounDeps extends SandboxDeps {
  /** Returns the caller of a key. Rejects with a refusal for one that is no longer valid. */
  callerOf(keyId: string): Promise<Caller>
  /** Signs the addresses of previews. */
  previewSecret: string
  /** Below which previews have host names; absent or empty for none. */
  previewDomain?: string
  /** Absent: previews transfer as much as they can. */
  previewLimits?: PreviewLimits
  timers?: Timers
  places: TransferPlaces
}

/** Builds the operations on named sandboxes, and the background jobs that keep them. */
export function sandboxNoun(
  rights: Rights,
  { callerOf, previewSecret, previewDomain = '', previewLimits, timers, places, ...deps }: SandboxNounDeps,
): SandboxNoun {
  const lifecycle = new SandboxLifecycle(deps)
  const watch = new SandboxWatch(lifecycle, timers)
  const reaper = new SandboxReaper(lifecycle, callerOf, timers)
  const networks = new SandboxNetworks(lifecycle, callerOf, timers)
  const addresses = new PreviewAddresses(previewSecret, previewDomain)
  const connections = new PreviewConnections(deps.metrics.previews, previewLimits)
  const previews = new Previews(lifecycle, callerOf, addresses, connections)
  return {
    verbs: {
      sandboxes: rights.noun(new Sandboxes(lifecycle), sandboxNeeds),
      sandboxProcesses: rights.noun(new SandboxProcesses(lifecycle), sandboxProcessNeeds),
      sandboxFiles: rights.noun(new SandboxFiles(lifecycle, places), sandboxFileNeeds),
      sandboxPorts: rights.noun(new SandboxPorts(lifecycle, addresses, connections), sandboxPortNeeds),
      previews: {
        get size() {
          return previews.size
        },
        find: (label) => previews.find(label),
        admissionOf: (preview, caller) => previews.admissionOf(preview, caller),
        admissionBy: (preview, grant) => previews.admissionBy(preview, grant),
        connect: (preview, admission) => previews.connect(preview, admission),
      },
      sandboxCode: rights.noun(new SandboxCode(lifecycle, lifecycle.kernels), sandboxCodeNeeds),
    },
    lifecycle,
    control: new SandboxControl(lifecycle, callerOf),
    start: () => {
      watch.start()
      reaper.start()
      networks.start()
      previews.start()
    },
    stop: async () => {
      await previews.stop()
      await watch.stop()
      await reaper.stop()
      await networks.stop()
    },
    retireKey: async (keyId) => {
      const rows = await deps.store.sandboxes.inStates(['starting', 'running', 'paused'])
      const own = rows.filter((row) => row.keyId === keyId)
      await previews.endInvalid()
      for (const _ of own) deps.metrics.sandbox('key_revoked')
      await Promise.all(own.map((row) => lifecycle.stop(row, systemActor, 0, 'key_revoked')))
    },
  }
}
