import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmdirSync,
  writeSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { StartRefused } from '../../base/errors.ts'
import {
  ignoreIncomplete,
  killPid,
  readControl,
  readKeyed,
  readNumber,
  readPids,
  removeWhenEmpty,
  sharedBytes,
  writeControl,
  writeControlIfThere,
  writeControlSlowly,
  writeControlSlowlyIfThere,
} from './cgroup-files.ts'
import type { Cgroups, Consumption, LeafLimits, PeakScope, SlotCgroup, Usage } from './cgroups.ts'
import { type Freezer, freezerV2 } from './freezer.ts'
import { LeftoverCache } from './leftover-cache.ts'
import { processorsOf } from './processors.ts'

const cpuPeriodUs = 100_000
const cpuQuotaMinUs = 1_000

interface Options {
  root: string
  /** `<prefix>/<instance>` */
  below: string
  base: LeafLimits
}

const controllers = ['memory', 'pids', 'cpu'] as const
/** Used where the machine has them. */
const optional = ['cpuset', 'io'] as const

/**
 * Cgroup v2: one hierarchy. A group either contains processes or delegates controllers to its children, never
 * both, so only leaves contain processes.
 *
 * The runtimes apply the device rules of a slot to `base`, which runs leave. The user namespace of a run prevents it from
 * creating device nodes.
 */
export class CgroupsV2 implements Cgroups {
  readonly version = 'v2'
  readonly controllers: readonly string[]
  readonly processors: readonly number[] | undefined
  readonly cpuFile: string
  readonly #options: Options

  /** @throws StartRefused if a controller cannot be delegated. */
  constructor(options: Options) {
    this.#options = options
    const instance = join(options.root, options.below)
    mkdirSync(instance, { recursive: true })
    this.cpuFile = join(instance, 'cpu.stat')
    this.controllers = [...controllers, ...optional.filter((name) => hasController(options.root, name))]
    for (const dir of [options.root, dirname(instance), instance]) handDown(dir, this.controllers)
    if (hasController(instance, 'cpuset'))
      this.processors = processorsOf(readControl(instance, 'cpuset.cpus.effective'))
  }

  create(slotId: string): SlotCgroup {
    return new SlotCgroupV2(this.#options, this.controllers, slotId)
  }

  hasInstance(instanceId: string): boolean {
    return existsSync(join(this.#options.root, dirname(this.#options.below), instanceId))
  }

  async reclaim(): Promise<number> {
    const instance = join(this.#options.root, this.#options.below)
    const ids = readdirSync(instance, { withFileTypes: true }).filter((entry) => entry.isDirectory())
    for (const { name } of ids) {
      killAll(join(instance, name))
      await removeWhenEmpty(slotDirs(join(instance, name)))
    }
    return ids.length
  }

  close(): void {
    const instance = join(this.#options.root, this.#options.below)
    for (const dir of [instance, dirname(instance)]) {
      try {
        rmdirSync(dir)
      } catch (error) {
        // Another instance or slot still uses it.
        const { code } = error as NodeJS.ErrnoException
        if (code !== 'ENOENT' && code !== 'EBUSY' && code !== 'ENOTEMPTY') throw error
      }
    }
  }
}

class SlotCgroupV2 implements SlotCgroup {
  readonly ociPath: string
  readonly freezer: Freezer
  readonly counters: SlotCgroup['counters']
  readonly peakScope: PeakScope
  readonly #slot: string
  readonly #run: string
  readonly #base: string
  readonly #below: string
  readonly #leftover: LeftoverCache
  /** The peak is counted per open descriptor from its last reset (Linux 6.12), so this one stays open. */
  #peakFd: number | undefined
  #before = { cpuUs: 0, oomKills: 0 }
  #runLimits: LeafLimits | undefined
  #processors: readonly number[] = []
  #lifted = false

  constructor(options: Options, handedDown: readonly string[], slotId: string) {
    this.#below = join(options.below, slotId)
    this.ociPath = `/${join(this.#below, 'base')}`
    this.#slot = join(options.root, this.#below)
    this.#run = join(this.#slot, 'run')
    this.#base = join(this.#slot, 'base')
    this.counters = { procsDir: this.#run, cpuFile: join(this.#run, 'cpu.stat') }
    mkdirSync(this.#slot, { recursive: true })
    handDown(this.#slot, handedDown)
    for (const leaf of [this.#base, this.#run]) mkdirSync(leaf, { recursive: true })
    this.#leftover = new LeftoverCache(this.#run)
    limit(this.#base, options.base)
    this.freezer = freezerV2(this.#run)
    const peak = openPeak(join(this.#run, 'memory.peak'))
    this.peakScope = peak.scope
    this.#peakFd = peak.fd
  }

  limitRun(limits: LeafLimits): void {
    this.#runLimits = limits
    limit(this.#run, limits)
  }

  liftProcessorLimits(): void {
    if (this.#lifted) return
    this.freezer.close()
    this.#lifted = true
    writeControl(this.#run, 'cpu.max', `max ${cpuPeriodUs}`)
    // Empty means all processors of the parent.
    if (this.#processors.length > 0) writeControl(this.#run, 'cpuset.cpus', '')
  }

  restoreProcessorLimits(): void {
    if (!this.#lifted) return
    this.#lifted = false
    this.freezer.open()
    if (this.#runLimits?.cpus !== undefined) writeQuota(this.#run, this.#runLimits.cpus)
    if (this.#processors.length > 0) this.bindRun(this.#processors)
  }

  bindRun(processors: readonly number[]): void {
    this.#processors = processors
    writeControl(this.#run, 'cpuset.cpus', processors.join(','))
  }

  async limitDevice(device: string, operationsPerSecond: number): Promise<void> {
    const limits = `${device} riops=${operationsPerSecond} wiops=${operationsPerSecond}`
    await writeControlSlowlyIfThere(this.#run, 'io.max', limits)
  }

  basePids(): number[] {
    return readPids(this.#base)
  }

  runPids(): number[] {
    return readPids(this.#run)
  }

  runTasks(): number[] {
    return readPids(this.#run, 'cgroup.threads')
  }

  async moveToRun(pid: number): Promise<void> {
    await writeControlSlowly(this.#run, 'cgroup.procs', pid)
  }

  holds(pid: number): boolean {
    const path = readFileSync(`/proc/${pid}/cgroup`, 'utf8')
      .split('\n')
      .find((line) => line.startsWith('0::'))
    return path?.endsWith(join(this.#below, 'run')) === true
  }

  beginUsage(): void {
    if (this.peakScope === 'run' && this.#peakFd !== undefined) writeSync(this.#peakFd, '0', 0)
    if (this.peakScope !== 'slot') this.#leftover.beginRun()
    this.#before = this.#counters()
  }

  usage(): Usage {
    const now = this.#counters()
    return {
      cpuTimeMs: (now.cpuUs - this.#before.cpuUs) / 1e3,
      memoryPeakBytes: this.#leftover.without(this.#peak()),
      oomKills: now.oomKills - this.#before.oomKills,
    }
  }

  oomKills(): number {
    return this.#oomKillsInAll() - this.#before.oomKills
  }

  async reclaim(): Promise<void> {
    const bytes =
      readKeyed(this.#run, 'memory.stat', 'inactive_file') + readKeyed(this.#run, 'memory.stat', 'active_file')
    if (bytes > 0) await writeControlSlowlyIfThere(this.#run, 'memory.reclaim', String(bytes)).catch(ignoreIncomplete)
  }

  cpuSeconds(): number {
    return readKeyed(this.#run, 'cpu.stat', 'usage_usec') / 1e6
  }

  consumption(): Consumption {
    const droppableBytes = readKeyed(this.#run, 'memory.stat', 'inactive_file')
    return {
      cpuSeconds: this.cpuSeconds(),
      memoryBytes: Math.max(0, readNumber(this.#run, 'memory.current') - droppableBytes),
      tasks: readNumber(this.#run, 'pids.current'),
    }
  }

  sharesMoreThan(bytes: number): boolean {
    const usedBytes = readNumber(this.#run, 'memory.current')
    this.#leftover.endRun(usedBytes)
    return usedBytes > bytes && sharedBytes(this.#run) > bytes
  }

  kill(): void {
    killAll(this.#slot)
  }

  async remove(): Promise<void> {
    if (this.#peakFd !== undefined) closeSync(this.#peakFd)
    this.#peakFd = undefined
    await removeWhenEmpty(slotDirs(this.#slot))
  }

  #peak(): number {
    if (this.#peakFd === undefined) return readNumber(this.#run, 'memory.current')
    const bytes = Buffer.alloc(32)
    return Number(bytes.toString('latin1', 0, readSync(this.#peakFd, bytes, 0, bytes.length, 0)))
  }

  #oomKillsInAll(): number {
    return readKeyed(this.#run, 'memory.events', 'oom_kill')
  }

  #counters(): { cpuUs: number; oomKills: number } {
    return {
      cpuUs: readKeyed(this.#run, 'cpu.stat', 'usage_usec'),
      oomKills: this.#oomKillsInAll(),
    }
  }
}

const slotDirs = (slot: string): string[] => [join(slot, 'run'), join(slot, 'base'), slot]

function killAll(slot: string): void {
  // cgroup.kill (Linux 5.14) also kills concurrent forks. Without it, the end of the PID namespace does.
  if (existsSync(slot) && writeControlIfThere(slot, 'cgroup.kill', 1)) return
  for (const leaf of ['base', 'run']) readPids(join(slot, leaf)).forEach(killPid)
}

function limit(leaf: string, limits: LeafLimits): void {
  writeControl(leaf, 'memory.max', limits.memoryBytes)
  // Absent only if the kernel has no swap accounting; then swap is not limited separately.
  writeControlIfThere(leaf, 'memory.swap.max', 0)
  writeControl(leaf, 'pids.max', limits.pids)
  if (limits.cpus === undefined) return
  writeQuota(leaf, limits.cpus)
}

/** @param cpus share in cores. */
function writeQuota(leaf: string, cpus: number): void {
  writeControl(leaf, 'cpu.max', `${Math.max(cpuQuotaMinUs, Math.round(cpus * cpuPeriodUs))} ${cpuPeriodUs}`)
}

/** Opens the peak file for writing, which fails if the kernel cannot reset the peak. */
function openPeak(path: string): { scope: PeakScope; fd?: number } {
  for (const [flags, scope] of [['r+', 'run'] as const, ['r', 'slot'] as const]) {
    try {
      return { scope, fd: openSync(path, flags) }
    } catch {}
  }
  return { scope: 'end_of_run' }
}

/** Enables the cpuset controller if possible. It is optional, since some machines do not delegate it. */
function hasController(dir: string, name: string): boolean {
  const path = join(dir, 'cgroup.controllers')
  return existsSync(path) && readFileSync(path, 'utf8').trim().split(' ').includes(name)
}

/** Enables the required controllers for the children of a group. */
function handDown(dir: string, controllers: readonly string[]): void {
  const has = readControl(dir, 'cgroup.subtree_control').trim().split(' ')
  const wanted = controllers.filter((name) => !has.includes(name))
  if (wanted.length === 0) return
  try {
    writeControl(dir, 'cgroup.subtree_control', wanted.map((name) => `+${name}`).join(' '))
  } catch (error) {
    throw refusedFor(dir, wanted, (error as NodeJS.ErrnoException).code)
  }
}

function refusedFor(dir: string, wanted: readonly string[], code: string | undefined): StartRefused {
  const reason = `The cgroup controllers ${wanted.join(', ')} cannot be handed down from ${dir} (${code}).`
  if (code === 'EBUSY')
    return new StartRefused(
      reason,
      'Processes live in that group, and the kernel allows either processes or children with controllers. Move them into a child of their own before starting: mkdir <group>/init and write each pid of <group>/cgroup.procs to <group>/init/cgroup.procs.',
    )
  return new StartRefused(
    reason,
    'Give this process a cgroup tree with these controllers that it may write to: as a system service Delegate=yes, in a container a private and writable cgroup namespace.',
  )
}
