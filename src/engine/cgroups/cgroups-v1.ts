import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs'
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
import type { Cgroups, CgroupVersion, Consumption, LeafLimits, SlotCgroup, Usage } from './cgroups.ts'
import { type Freezer, freezerV1 } from './freezer.ts'
import { LeftoverCache } from './leftover-cache.ts'
import { processorsOf } from './processors.ts'

/** The default of the kernel, in microseconds. A shorter period would throttle more smoothly but cost more timer work. */
const cpuPeriodUs = 100_000
/** The minimum that the kernel accepts. */
const cpuQuotaMinUs = 1_000

/**
 * Limit of TCP and UDP socket buffers. They are not part of the memory limit, unlike with cgroup v2:
 * https://docs.kernel.org/admin-guide/cgroup-v1/memory.html#current-kernel-memory-resources-accounted
 */
const socketLimitFile = 'memory.kmem.tcp.limit_in_bytes'
/** Share of the memory limit that is added for socket buffers; enough for connections between the programs of one run. */
const socketShare = 1 / 8

interface Options {
  version: CgroupVersion
  /** Every hierarchy, since the runtime creates directories in all of them. */
  allPoints: readonly string[]
  pointOf(controller: Controller): string
  /** Limits of block devices, where the kernel has them. */
  blkioPoint: string | undefined
  cpusetPoint: string | undefined
  freezerPoint: string | undefined
  /** A plain directory that a runtime mistakes for a hierarchy. */
  shadow: string | undefined
  /** `<prefix>/<instance>` */
  below: string
  base: LeafLimits
}

const controllers = ['memory', 'pids', 'cpu', 'cpuacct'] as const
type Controller = (typeof controllers)[number]

/**
 * Cgroup v1: one hierarchy per controller. Only those that limit or measure a run have a `run` leaf. The device rules
 * of `base` also apply to runs, since no process leaves the leaf in that hierarchy.
 */
export class CgroupsV1 implements Cgroups {
  readonly version: CgroupVersion
  readonly controllers: readonly string[]
  readonly processors: readonly number[] | undefined
  readonly cpuFile: string
  readonly #options: Options

  /** @throws StartRefused if the kernel does not account all memory of a run. */
  constructor(options: Options) {
    this.version = options.version
    this.#options = options
    this.cpuFile = join(options.pointOf('cpuacct'), options.below, 'cpuacct.usage')
    requireSocketLimit(options.pointOf('memory'))
    // `cpu` and `cpuacct` are often one hierarchy, elsewhere two.
    for (const point of this.#points()) mkdirSync(join(point, options.below), { recursive: true })
    const { cpusetPoint, below } = options
    this.controllers = cpusetPoint === undefined ? controllers : [...controllers, 'cpuset']
    if (cpusetPoint === undefined) return
    const instance = join(cpusetPoint, below)
    makeCpuset(dirname(instance))
    makeCpuset(instance)
    this.processors = processorsOf(readControl(instance, 'cpuset.cpus'))
  }

  create(slotId: string): SlotCgroup {
    return new SlotCgroupV1(this.#options, slotId)
  }

  hasInstance(instanceId: string): boolean {
    const sibling = join(dirname(this.#options.below), instanceId)
    return this.#options.allPoints.some((point) => existsSync(join(point, sibling)))
  }

  async reclaim(): Promise<number> {
    const ids = new Set(this.#options.allPoints.flatMap((point) => childrenOf(join(point, this.#options.below))))
    for (const id of ids) {
      for (const point of this.#options.allPoints)
        for (const leaf of ['base', 'run']) readPids(join(point, this.#options.below, id, leaf)).forEach(killPid)
      await removeWhenEmpty(slotDirs(this.#options, id))
    }
    return ids.size
  }

  close(): void {
    const { shadow, below } = this.#options
    if (shadow !== undefined) rmSync(join(shadow, below), { recursive: true, force: true })
    for (const point of this.#options.allPoints) {
      const instance = join(point, this.#options.below)
      removeIfEmpty(instance)
      removeIfEmpty(dirname(instance))
    }
  }

  #points(): Set<string> {
    return new Set(controllers.map((name) => this.#options.pointOf(name)))
  }
}

class SlotCgroupV1 implements SlotCgroup {
  readonly ociPath: string
  readonly freezer: Freezer
  readonly counters: SlotCgroup['counters']
  readonly peakScope = 'run'
  readonly #options: Options
  readonly #slotId: string
  readonly #runDirs: readonly string[]
  readonly #cpuset: string | undefined
  readonly #leftover: LeftoverCache
  #before = { cpuNs: 0, oomKills: 0 }
  #runLimits: LeafLimits | undefined
  #processors: readonly number[] = []
  #lifted = false

  constructor(options: Options, slotId: string) {
    this.#options = options
    this.#slotId = slotId
    this.ociPath = `/${join(options.below, slotId, 'base')}`
    for (const name of controllers)
      for (const leaf of ['base', 'run'] as const) mkdirSync(this.#leaf(name, leaf), { recursive: true })
    this.#cpuset = options.cpusetPoint && join(options.cpusetPoint, options.below, slotId, 'run')
    if (this.#cpuset !== undefined) {
      makeCpuset(dirname(this.#cpuset))
      makeCpuset(this.#cpuset)
    }
    const leaves = controllers.map((name) => this.#leaf(name, 'run'))
    this.counters = {
      procsDir: this.#leaf('pids', 'run'),
      cpuFile: join(this.#leaf('cpuacct', 'run'), 'cpuacct.usage'),
    }
    this.#runDirs = [...new Set(this.#cpuset === undefined ? leaves : [...leaves, this.#cpuset])]
    this.#leftover = new LeftoverCache(this.#leaf('memory', 'run'))
    this.#limit('base', options.base)
    this.freezer = freezerV1(options.freezerPoint, this.ociPath)
  }

  limitRun(limits: LeafLimits): void {
    this.#runLimits = limits
    this.#limit('run', limits)
  }

  liftProcessorLimits(): void {
    if (this.#lifted) return
    this.freezer.close()
    this.#lifted = true
    writeControl(this.#leaf('cpu', 'run'), 'cpu.cfs_quota_us', -1)
    if (this.#cpuset !== undefined)
      writeControl(this.#cpuset, 'cpuset.cpus', readControl(dirname(this.#cpuset), 'cpuset.cpus').trim())
  }

  restoreProcessorLimits(): void {
    if (!this.#lifted) return
    this.#lifted = false
    this.freezer.open()
    if (this.#runLimits?.cpus !== undefined) writeQuota(this.#leaf('cpu', 'run'), this.#runLimits.cpus)
    if (this.#cpuset !== undefined && this.#processors.length > 0) this.bindRun(this.#processors)
  }

  bindRun(processors: readonly number[]): void {
    if (this.#cpuset === undefined) throw new Error('there is no cpuset controller')
    this.#processors = processors
    writeControl(this.#cpuset, 'cpuset.cpus', processors.join(','))
  }

  /** In this hierarchy processes of runs stay in `base`, which the runtime creates. */
  async limitDevice(device: string, operationsPerSecond: number): Promise<void> {
    const { blkioPoint } = this.#options
    if (blkioPoint === undefined) return
    for (const direction of ['read', 'write']) {
      const file = `blkio.throttle.${direction}_iops_device`
      await writeControlSlowlyIfThere(join(blkioPoint, this.ociPath), file, `${device} ${operationsPerSecond}`)
    }
  }

  basePids(): number[] {
    return readPids(this.#leaf('pids', 'base'))
  }

  runPids(): number[] {
    return readPids(this.#leaf('pids', 'run'))
  }

  runTasks(): number[] {
    return readPids(this.#leaf('pids', 'run'), 'tasks')
  }

  async moveToRun(pid: number): Promise<void> {
    const [first, ...others] = this.#runDirs
    if (first !== undefined) await writeControlSlowly(first, 'cgroup.procs', pid)
    // The kernel waits only for the first move.
    for (const dir of others) writeControl(dir, 'cgroup.procs', pid)
  }

  holds(pid: number): boolean {
    const memberships = readFileSync(`/proc/${pid}/cgroup`, 'utf8')
      .split('\n')
      .map((line) => line.split(':'))
    const leaf = join(this.#options.below, this.#slotId, 'run')
    const names = this.#cpuset === undefined ? controllers : [...controllers, 'cpuset']
    return names.every((name) =>
      memberships.some(([, held, path]) => held?.split(',').includes(name) && path?.endsWith(leaf)),
    )
  }

  beginUsage(): void {
    writeControl(this.#leaf('memory', 'run'), 'memory.max_usage_in_bytes', 0)
    this.#leftover.beginRun()
    this.#before = this.#counters()
  }

  usage(): Usage {
    const now = this.#counters()
    return {
      cpuTimeMs: (now.cpuNs - this.#before.cpuNs) / 1e6,
      memoryPeakBytes: this.#leftover.without(readNumber(this.#leaf('memory', 'run'), 'memory.max_usage_in_bytes')),
      oomKills: now.oomKills - this.#before.oomKills,
    }
  }

  consumption(): Consumption {
    const memory = this.#leaf('memory', 'run')
    const droppableBytes = readKeyed(memory, 'memory.stat', 'total_inactive_file')
    return {
      cpuSeconds: this.cpuSeconds(),
      memoryBytes: Math.max(0, readNumber(memory, 'memory.usage_in_bytes') - droppableBytes),
      tasks: readNumber(this.#leaf('pids', 'run'), 'pids.current'),
    }
  }

  oomKills(): number {
    return this.#oomKillsInAll() - this.#before.oomKills
  }

  cpuSeconds(): number {
    return readNumber(this.#leaf('cpuacct', 'run'), 'cpuacct.usage') / 1e9
  }

  /** The kernel writes back what is left and drops it: memory.force_empty, for want of memory.reclaim. */
  async reclaim(): Promise<void> {
    await writeControlSlowlyIfThere(this.#leaf('memory', 'run'), 'memory.force_empty', '0').catch(ignoreIncomplete)
  }

  sharesMoreThan(bytes: number): boolean {
    const memory = this.#leaf('memory', 'run')
    const usedBytes = readNumber(memory, 'memory.usage_in_bytes')
    this.#leftover.endRun(usedBytes)
    return usedBytes > bytes && sharedBytes(memory) > bytes
  }

  /** A frozen process receives no signal. */
  kill(): void {
    this.freezer.thaw()
    for (const pid of [...this.basePids(), ...this.runPids()]) killPid(pid)
  }

  async remove(): Promise<void> {
    const { shadow, below } = this.#options
    if (shadow !== undefined) rmSync(join(shadow, below, this.#slotId), { recursive: true, force: true })
    await removeWhenEmpty(slotDirs(this.#options, this.#slotId))
  }

  #oomKillsInAll(): number {
    return readKeyed(this.#leaf('memory', 'run'), 'memory.oom_control', 'oom_kill')
  }

  #counters(): { cpuNs: number; oomKills: number } {
    return {
      cpuNs: readNumber(this.#leaf('cpuacct', 'run'), 'cpuacct.usage'),
      oomKills: this.#oomKillsInAll(),
    }
  }

  #limit(leaf: 'base' | 'run', limits: LeafLimits): void {
    const memory = this.#leaf('memory', leaf)
    writeControl(memory, 'memory.limit_in_bytes', limits.memoryBytes)
    // Memory and swap together. If the kernel does not account swap, swapping is disabled for this leaf.
    if (!writeControlIfThere(memory, 'memory.memsw.limit_in_bytes', limits.memoryBytes))
      writeControl(memory, 'memory.swappiness', 0)
    writeControl(memory, socketLimitFile, Math.floor(limits.memoryBytes * socketShare))
    writeControl(this.#leaf('pids', leaf), 'pids.max', limits.pids)
    if (limits.cpus === undefined) return
    writeControl(this.#leaf('cpu', leaf), 'cpu.cfs_period_us', cpuPeriodUs)
    writeQuota(this.#leaf('cpu', leaf), limits.cpus)
  }

  #leaf(name: Controller, leaf: 'base' | 'run'): string {
    return join(this.#options.pointOf(name), this.#options.below, this.#slotId, leaf)
  }
}

/** @param cpus share in cores. */
function writeQuota(dir: string, cpus: number): void {
  writeControl(dir, 'cpu.cfs_quota_us', Math.max(cpuQuotaMinUs, Math.round(cpus * cpuPeriodUs)))
}

/** Copies the values of the parent to a new cpuset, because an empty cpuset accepts no processes. */
function makeCpuset(dir: string): void {
  mkdirSync(dir, { recursive: true })
  for (const file of ['cpuset.cpus', 'cpuset.mems']) {
    if (readControl(dir, file).trim() === '') writeControl(dir, file, readControl(dirname(dir), file).trim())
  }
}

function requireSocketLimit(memoryPoint: string): void {
  if (existsSync(join(memoryPoint, socketLimitFile))) return
  throw new StartRefused(
    `This kernel does not limit the buffers of sockets (no ${socketLimitFile} in ${memoryPoint}), so a run could exceed its memory.`,
    'Boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or with a kernel that has CONFIG_MEMCG_KMEM.',
  )
}

const slotDirs = (options: Options, slotId: string): string[] =>
  options.allPoints
    .map((point) => join(point, options.below, slotId))
    .filter((slot) => existsSync(slot))
    .flatMap((slot) => [join(slot, 'run'), join(slot, 'base'), slot])

function childrenOf(dir: string): string[] {
  if (!existsSync(dir)) return []
  return readdirSync(dir, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
}

/** Removes a directory unless another instance or slot uses it. */
function removeIfEmpty(dir: string): void {
  try {
    rmdirSync(dir)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'ENOENT' && code !== 'EBUSY' && code !== 'ENOTEMPTY') throw error
  }
}
