import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { StartRefused } from '../../base/errors.ts'
import type { Limits } from '../../base/run.ts'
import { CgroupsV1 } from './cgroups-v1.ts'
import { CgroupsV2 } from './cgroups-v2.ts'

export type CgroupVersion = 'v1' | 'hybrid' | 'v2'

/** What the kernel's peak memory figure covers here. */
export type PeakScope =
  /** This run. */
  | 'run'
  /** Every run of the slot so far: the kernel cannot reset it (before Linux 6.12 with cgroup v2). */
  | 'slot'
  /** Only what was in use when the run ended: the kernel keeps no peak (before Linux 5.19 with cgroup v2). */
  | 'end_of_run'

export type LeafLimits = Pick<Limits, 'memoryBytes' | 'pids'> & { cpus?: number }

export interface Usage {
  cpuTimeMs: number
  memoryPeakBytes: number
  oomKills: number
}

/**
 * The cgroup of one slot with its two leaves: `base` for the guest and what makes jails, `run` for the jailed program.
 * Most calls are a few small reads and writes in the kernel's own file system, so they are synchronous.
 */
export interface SlotCgroup {
  /** What the OCI runtime is told: the path of `base` below every hierarchy. */
  readonly ociPath: string
  readonly peakScope: PeakScope
  /** Sets the limits of `run`. */
  limitRun(limits: LeafLimits): void
  /** Binds `run` to these processors of the machine; only where `Cgroups.processors` has them. */
  bindRun(processors: readonly number[]): void
  /**
   * Lets what is in `run` use every processor without a quota: for processes that were killed, whose last work is giving
   * back what they hold (page tables, files), on their own time.
   */
  liftProcessorLimits(): void
  /** Sets the limits that `liftProcessorLimits` took away; nothing where it was not called. */
  restoreProcessorLimits(): void
  basePids(): number[]
  runPids(): number[]
  /**
   * Moves one process into `run`. The only call that takes its time: the kernel waits for an RCU grace period, ten
   * milliseconds or so, when no process of the machine was moved just before.
   * @throws Error when the kernel refuses or the process is gone.
   */
  moveToRun(pid: number): Promise<void>
  /** @returns whether every limit of `run` applies to the process, as the kernel tells it. */
  holds(pid: number): boolean
  /** Starts counting anew: what `usage` tells is since here. */
  beginUsage(): void
  usage(): Usage
  /** @returns whether `run` holds more than so much shared memory now. */
  sharesMoreThan(bytes: number): boolean
  /** SIGKILL to everything in both leaves. */
  kill(): void
  /** Removes the cgroup once it is empty. @throws Error when something still lives in it after 3 s. */
  remove(): Promise<void>
}

export interface Cgroups {
  readonly version: CgroupVersion
  /** The ones that limit and measure runs. */
  readonly controllers: readonly string[]
  /**
   * The processors that runs can be bound to; `undefined` where the machine has no cpuset controller. The share of a run
   * is limited either way: binding only lets programs count what they have.
   */
  readonly processors: readonly number[] | undefined
  create(slotId: string): SlotCgroup
  /** Whether an instance of this machine has cgroups: one that lives does, from before its first slot until after its last. */
  hasInstance(instanceId: string): boolean
  /** Ends and removes every slot cgroup of this instance. @returns how many there were. */
  reclaim(): Promise<number>
  /** Removes the instance's own directories; its slots are gone before. */
  close(): void
}

export interface CgroupMount {
  point: string
  controllers: readonly string[] | 'v2'
}

/** Below this name, in every hierarchy, lies everything of ours. */
export const cgroupPrefix = 'glovebox'

/** Controllers without which no limit would hold. */
const needed = ['memory', 'pids', 'cpu', 'cpuacct'] as const

/** The cgroup mounts at or below `root`, read from the text of /proc/self/mountinfo. */
export function cgroupMounts(mountinfo: string, root: string): CgroupMount[] {
  return mountinfo.split('\n').flatMap((line): CgroupMount[] => {
    // https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
    const [left = '', right = ''] = line.split(' - ')
    const point = left.split(' ')[4] ?? ''
    const [type, , options = ''] = right.split(' ')
    if (point !== root && !point.startsWith(`${root}/`)) return []
    if (type === 'cgroup2') return [{ point, controllers: 'v2' }]
    return type === 'cgroup' ? [{ point, controllers: options.split(',') }] : []
  })
}

/**
 * Finds which cgroups this machine has and takes its place in them.
 * @throws StartRefused when a needed controller cannot be had.
 */
export function openCgroups(options: {
  root: string
  instanceId: string
  base: LeafLimits
  /** A plain directory that a runtime takes for a hierarchy. */
  shadow?: string
  mountinfo?: string
}): Cgroups {
  const mounts = cgroupMounts(options.mountinfo ?? readFileSync('/proc/self/mountinfo', 'utf8'), options.root)
  const below = join(cgroupPrefix, options.instanceId)
  if (mounts.some((mount) => mount.controllers === 'v2' && mount.point === options.root))
    return new CgroupsV2({ root: options.root, below, base: options.base })

  const missing = needed.filter((name) => !mounts.some((mount) => mount.controllers.includes(name)))
  if (missing.length > 0) throw refusedForControllers(missing, options.root)
  return new CgroupsV1({
    version: mounts.some((mount) => mount.controllers === 'v2') ? 'hybrid' : 'v1',
    allPoints: mounts.map((mount) => mount.point),
    pointOf: (name) => mounts.find((mount) => mount.controllers.includes(name))?.point ?? options.root,
    cpusetPoint: mounts.find((mount) => mount.controllers.includes('cpuset'))?.point,
    shadow: options.shadow,
    below,
    base: options.base,
  })
}

function refusedForControllers(missing: readonly string[], root: string): StartRefused {
  return new StartRefused(
    `The cgroup controllers ${missing.join(', ')} are not available below ${root}, so limits would not hold.`,
    `Mount cgroup v2 at ${root}, or the v1 hierarchies of these controllers; in a container, give it a cgroup tree it may write to (privileged, or --cgroupns=private with a writable mount).`,
  )
}
