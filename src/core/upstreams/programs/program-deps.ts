import type { JailNetwork } from '../../../base/network.ts'
import type { Log } from '../../../observe/log.ts'
import type { Metrics } from '../../../observe/metrics.ts'
import type { RunnerSandboxes } from '../../../runner/protocol/sandboxes.ts'
import type { Store } from '../../../store/store.ts'
import type { ProgramProcesses } from './program-process.ts'

/** How many programs run at once, and what each may use. */
export interface ProgramLimits {
  /** Sandboxes of all organizations. */
  max: number
  perOrg: number
  /** Memory of one. */
  memoryBytes: number
  /** Disk of one. */
  diskBytes: number
}

export interface ProgramDeps {
  store: Pick<Store, 'upstreams' | 'upstreamSandboxes' | 'upstreamCredentials'>
  runner: Pick<RunnerSandboxes, 'start' | 'stop' | 'remove' | 'list'> & { processes: ProgramProcesses }
  limits: ProgramLimits
  /** Whether a sandbox that is not needed here may be stopped. Absent: always. */
  mayStop?: (sandboxId: string) => Promise<boolean>
  /** The network of package managers, with which programs are installed. */
  packages: JailNetwork
  metrics?: Pick<Metrics, 'program' | 'programs'>
  log?: Log
}
