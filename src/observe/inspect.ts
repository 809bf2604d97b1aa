import { readFileSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import os from 'node:os'
import v8 from 'node:v8'
import vm from 'node:vm'
import { type Log, type LogLevel, linesOf } from './log.ts'
import type { LogQuery } from './log-lines.ts'
import {
  cgroupFile,
  descriptorsByKind,
  eventLoopUse,
  observeProcess,
  openFilesMax,
  processorFigures,
  vitals,
} from './process-vitals.ts'
import { allocations, cpuProfile } from './profiler.ts'
import { counted } from './recent-runs.ts'

/** What an inspection can be limited by; each uses its own. */
export interface InspectOptions extends LogQuery {
  /** How long to sample, in milliseconds. */
  durationMs?: number | undefined
  /** Entries in the result. */
  top?: number | undefined
  /** For `log_level`: the new level, and when the old one returns, in milliseconds. */
  setLevel?: LogLevel | undefined
  revertMs?: number | undefined
}

/** What a process can report about itself. */
export const inspectionTopics = [
  'vitals',
  'memory',
  'heap_spaces',
  'event_loop',
  'gc',
  'cpu',
  'cpu_profile',
  'allocations',
  'threads',
  'stacks',
  'resources',
  'descriptors',
  'runtime',
  'properties',
  'environment',
  'code',
  'collect_garbage',
  'log',
  'log_info',
  'log_level',
] as const
export type InspectionTopic = (typeof inspectionTopics)[number]

type Inspect = (options: InspectOptions, log: Log) => object | Promise<object>

/** Errors within this time are recent. */
const recentMs = 10 * 60_000

/** Longest sampling. Sampling slows the process down by a few percent. */
export const sampleMaxMs = 10_000

const inspections: Readonly<Record<InspectionTopic, Inspect>> = {
  vitals: () => ({ ...vitals() }),
  memory: () => ({
    process: process.memoryUsage(),
    heap: v8.getHeapStatistics(),
    machine: { total_bytes: os.totalmem(), free_bytes: os.freemem() },
    cgroup: cgroupFile('memory.stat'),
  }),
  heap_spaces: () => ({ spaces: v8.getHeapSpaceStatistics() }),
  event_loop: () => ({ lag: observeProcess().lag(), use: eventLoopUse() }),
  gc: () => ({ collections: observeProcess().collections() }),
  cpu: () => processorFigures(),
  cpu_profile: ({ durationMs = 3_000, top = 5 }) => cpuProfile(Math.min(durationMs, sampleMaxMs), top),
  allocations: ({ durationMs = 3_000, top = 10 }) => allocations(Math.min(durationMs, sampleMaxMs), top),
  threads: () => ({
    threads: threadsOf(),
    pool_threads: Number(environment().UV_THREADPOOL_SIZE ?? 4),
    active_resources: counted(process.getActiveResourcesInfo()),
  }),
  stacks: () => stacks(),
  resources: () => ({ active_resources: counted(process.getActiveResourcesInfo()), usage: process.resourceUsage() }),
  descriptors: () => ({ limit: openFilesMax(), by_kind: descriptorsByKind() }),
  runtime: () => ({
    versions: process.versions,
    pid: process.pid,
    arguments: process.execArgv,
    started_at: new Date(Date.now() - process.uptime() * 1000).toISOString(),
    uptime_seconds: Math.round(process.uptime()),
  }),
  properties: () => ({
    features: process.features,
    release: process.release.name,
    arch: process.arch,
    platform: process.platform,
    os: { type: os.type(), release: os.release(), version: os.version(), machine: os.machine() },
    processors: os.cpus().length,
    cgroup: cgroupFile('cgroup.stat'),
  }),
  environment: () => ({ variables: masked(environment()) }),
  code: () => ({ code: v8.getHeapCodeStatistics() }),
  collect_garbage: () => collectGarbage(),
  log: (query, log) => ({ entries: linesOf(log).find(query) }),
  log_info: (_, log) => {
    const { size: kept, errors } = linesOf(log)
    return { level: log.level, kept, errors, recent_errors: linesOf(log).recentErrors(recentMs) }
  },
  log_level: (options, log) => setLogLevel(options, log),
}

/** Reports about this process. @param log the log of the process. */
export const inspectProcess = async (topic: InspectionTopic, options: InspectOptions, log: Log): Promise<object> =>
  inspections[topic](options, log)

/** Variables whose value is no secret; of all others only the name is reported. */
const shownVariables: ReadonlySet<string> = new Set(['PATH', 'LANG', 'LC_ALL', 'TZ', 'UV_THREADPOOL_SIZE', 'NODE_ENV'])

const masked = (env: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(env).map(([name, value]) => [name, shownVariables.has(name) ? value : '[hidden]']))

/** The variables with which this process was started, of proc_pid_environ(5). */
function environment(): Record<string, string> {
  const variables = readFileSync('/proc/self/environ', 'utf8').split('\0')
  return Object.fromEntries(
    variables.filter(Boolean).map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  )
}

const threadsOf = (): number =>
  Number(/^Threads:\s+(\d+)$/m.exec(readFileSync('/proc/self/status', 'latin1'))?.[1] ?? Number.NaN)

/** The stacks of this process now: what it executes, without addresses of clients and without variables. */
function stacks(): object {
  Object.assign(process.report, { excludeEnv: true, excludeNetwork: true })
  const report = process.report.getReport() as unknown as {
    javascriptStack: object
    nativeStack: object[]
    libuv: { type: string; is_active: boolean }[]
    resourceUsage: object
  }
  const { javascriptStack, nativeStack, libuv, resourceUsage } = report
  const active = libuv.filter((handle) => handle.is_active).map(({ type }) => type)
  return { javascriptStack, nativeStack: nativeStack.slice(0, 64), handles: counted(active), resourceUsage }
}

/** https://nodejs.org/api/v8.html#v8setflagsfromstringflags */
function collectGarbage(): object {
  v8.setFlagsFromString('--expose-gc')
  const collect = vm.runInNewContext('gc') as () => void
  v8.setFlagsFromString('--no-expose-gc')
  const before = process.memoryUsage().heapUsed
  const startedMs = performance.now()
  collect()
  const ms = Math.round(performance.now() - startedMs)
  return { before_bytes: before, after_bytes: process.memoryUsage().heapUsed, ms }
}

/** Time after which a changed level returns, unless another time was given. */
const revertAfterMs = 10 * 60_000
const reverting = new WeakMap<Log, { level: string; timer: NodeJS.Timeout }>()

/** Changes the level for a time, so that a forgotten one does not fill the disk. */
function setLogLevel({ setLevel = 'debug', revertMs = revertAfterMs }: InspectOptions, log: Log): object {
  const pending = reverting.get(log)
  clearTimeout(pending?.timer)
  const level = pending?.level ?? log.level
  const timer = setTimeout(() => {
    log.level = level
    reverting.delete(log)
  }, revertMs).unref()
  reverting.set(log, { level, timer })
  log.level = setLevel
  return { level: setLevel, reverts_to: level, reverts_at: new Date(Date.now() + revertMs).toISOString() }
}

/** Free and total space of the disks of some directories. A directory that cannot be read has `null`. */
export async function diskUsage(
  directories: Readonly<Record<string, string>>,
): Promise<Record<string, DiskUsage | null>> {
  const entries = Object.entries(directories).map(async ([name, path]) => [name, await diskOf(path)] as const)
  return Object.fromEntries(await Promise.all(entries))
}

export interface DiskUsage {
  total_bytes: number
  free_bytes: number
  /** Share, 0 to 1. */
  free: number
  free_inodes: number
}

async function diskOf(path: string): Promise<DiskUsage | null> {
  try {
    const { blocks, bavail, bsize, ffree } = await statfs(path)
    const free = blocks === 0 ? 0 : Math.round((bavail / blocks) * 1000) / 1000
    return { total_bytes: blocks * bsize, free_bytes: bavail * bsize, free, free_inodes: ffree }
  } catch {
    return null
  }
}
