import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { StartRefused } from '../../base/errors.ts'
import type { Limits } from '../../base/run.ts'
import { CgroupsV1 } from './cgroups-v1.ts'
import { CgroupsV2 } from './cgroups-v2.ts'
import type { Freezer } from './freezer.ts'

export type CgroupVersion = 'v1' | 'hybrid' | 'v2'

/** The scope of the peak memory that the kernel reports. */
export type PeakScope =
  /** The run. */
  | 'run'
  /** All runs of the slot so far: the kernel cannot reset the peak (cgroup v2 before Linux 6.12). */
  | 'slot'
  /** The memory in use at the end of the run: the kernel has no peak (cgroup v2 before Linux 5.19). */
  | 'end_of_run'

export type LeafLimits = Pick<Limits, 'memoryBytes' | 'pids'> & { cpus?: number }

export interface Usage {
  cpuTimeMs: number
  memoryPeakBytes: number
  oomKills: number
}

/** What `run` uses now. */
export interface Consumption {
  /** Since it was created. */
  cpuSeconds: number
  /** Without pages of files that the kernel can drop at any time. */
  memoryBytes: number
  /** Processes and threads. */
  tasks: number
}

/**
 * The cgroup of one slot with its two leaves: `base` for the guest and the jailer, `run` for the jailed program. Most
 * calls are a few small reads and writes in a kernel filesystem, so they are synchronous.
 */
export interface SlotCgroup {
  /** The path of `base` below every hierarchy, for the OCI runtime. */
  readonly ociPath: string
  readonly peakScope: PeakScope
  /** Suspends the processes of `run`. Its holds end when the processor limits are lifted. */
  readonly freezer: Freezer
  /** Where the kernel lists the processes of `run` and counts their processor time, for readers in other threads. */
  readonly counters: { procsDir: string; cpuFile: string }
  /** Sets the limits of `run`. */
  limitRun(limits: LeafLimits): void
  /** Binds `run` to processors of the machine. Requires `Cgroups.processors`. */
  bindRun(processors: readonly number[]): void
  /**
   * Removes the CPU quota and the processor binding of `run`, so that killed processes can release their resources (page
   * tables, files) faster.
   */
  liftProcessorLimits(): void
  /** Restores the limits that `liftProcessorLimits` removed; does nothing if it was not called. */
  restoreProcessorLimits(): void
  basePids(): number[]
  runPids(): number[]
  /** Threads of `run`. */
  runTasks(): number[]
  /**
   * Moves one process into `run`. This is the only slow call: the kernel waits for an RCU grace period, about ten
   * milliseconds, unless another process was moved shortly before.
   * @throws Error if the kernel refuses or the process does not exist.
   */
  moveToRun(pid: number): Promise<void>
  /** Returns whether every limit of `run` applies to the process, according to the kernel. */
  holds(pid: number): boolean
  /** Resets the counters: `usage` reports what was used since this call. */
  beginUsage(): void
  usage(): Usage
  consumption(): Consumption
  /** Processes of `run` that the kernel killed for memory since `beginUsage`. One short read. */
  oomKills(): number
  /** Processor time of `run` since its creation. One short read. */
  cpuSeconds(): number
  /**
   * Makes the kernel give back the pages of files that `run` holds and that it can read again. The memory of its processes
   * is not affected. Resolves when it has, or cannot give back more.
   */
  reclaim(): Promise<void>
  /**
   * Limits the operations of runs on one block device. Does nothing where the kernel has no such limit. The first limit
   * of a device takes tens of milliseconds.
   * @param device as `major:minor`.
   */
  limitDevice(device: string, operationsPerSecond: number): Promise<void>
  /** Returns whether `run` uses more shared memory than a number of bytes. To be called after each run. */
  sharesMoreThan(bytes: number): boolean
  /** Sends SIGKILL to all processes in both leaves. */
  kill(): void
  /** Removes the cgroup when it is empty. @throws Error if a process is still in it after 3 s. */
  remove(): Promise<void>
}

export interface Cgroups {
  readonly version: CgroupVersion
  /** The controllers that limit and measure runs. */
  readonly controllers: readonly string[]
  /**
   * The processors that runs can be bound to; `undefined` without a cpuset controller. The CPU share of a run is limited
   * in both cases: the binding only makes the number visible to programs.
   */
  readonly processors: readonly number[] | undefined
  /** Where the kernel counts the processor time of all slots. The first number in it never decreases. */
  readonly cpuFile: string
  create(slotId: string): SlotCgroup
  /** Whether an instance on this machine has cgroups, which is the case from before its first slot until after its last. */
  hasInstance(instanceId: string): boolean
  /** Kills all processes in the slot cgroups of this instance and removes them. @returns the number of cgroups. */
  reclaim(): Promise<number>
  /** Removes the directories of the instance. Its slots must be removed before. */
  close(): void
}

export interface CgroupMount {
  point: string
  controllers: readonly string[] | 'v2'
}

/** Name of the directory in each hierarchy that contains all cgroups of the product. */
export const cgroupPrefix = 'glovebox'

/** Controllers that are required to enforce limits. */
const needed = ['memory', 'pids', 'cpu', 'cpuacct'] as const

/** Parses the cgroup mounts at or below `root` from the text of /proc/self/mountinfo. */
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
 * Detects the cgroup version of this machine and creates the directories of the instance.
 * @throws StartRefused if a required controller is not available.
 */
export function openCgroups(options: {
  root: string
  instanceId: string
  base: LeafLimits
  /** A plain directory that a runtime mistakes for a hierarchy. */
  shadow?: string
  mountinfo?: string
}): Cgroups {
  const mounts = cgroupMounts(options.mountinfo ?? readFileSync('/proc/self/mountinfo', 'utf8'), options.root)
  const below = join(cgroupPrefix, options.instanceId)
  requireWritable(mounts, options.root)
  if (mounts.some((mount) => mount.controllers === 'v2' && mount.point === options.root))
    return new CgroupsV2({ root: options.root, below, base: options.base })

  const missing = needed.filter((name) => !mounts.some((mount) => mount.controllers.includes(name)))
  if (missing.length > 0) throw refusedForControllers(missing, options.root)
  return new CgroupsV1({
    version: mounts.some((mount) => mount.controllers === 'v2') ? 'hybrid' : 'v1',
    allPoints: mounts.map((mount) => mount.point),
    pointOf: (name) => mounts.find((mount) => mount.controllers.includes(name))?.point ?? options.root,
    blkioPoint: mounts.find((mount) => mount.controllers.includes('blkio'))?.point,
    cpusetPoint: mounts.find((mount) => mount.controllers.includes('cpuset'))?.point,
    freezerPoint: mounts.find((mount) => mount.controllers.includes('freezer'))?.point,
    shadow: options.shadow,
    below,
    base: options.base,
  })
}

/** Where the hierarchies of containers are mounted from. */
const containerFlag = '--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw'

/** @throws StartRefused where no group can be created, as in most containers. */
function requireWritable(mounts: readonly CgroupMount[], root: string): void {
  for (const { point, controllers } of mounts) {
    const isUsed = controllers === 'v2' ? point === root : needed.some((name) => controllers.includes(name))
    if (!isUsed) continue
    try {
      mkdirSync(join(point, cgroupPrefix), { recursive: true })
    } catch (error) {
      throw new StartRefused(
        `No cgroup can be created in ${point}: ${(error as Error).message}.`,
        `Mount it writable. In a container, add ${containerFlag} to its flags.`,
      )
    }
  }
}

function refusedForControllers(missing: readonly string[], root: string): StartRefused {
  return new StartRefused(
    `The cgroup controllers ${missing.join(', ')} are not available below ${root}, so limits would not hold.`,
    `Mount cgroup v2 at ${root}, or the v1 hierarchies of these controllers; in a container, add ${containerFlag} to its flags.`,
  )
}
