import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { availableParallelism, loadavg } from 'node:os'
import { monitorEventLoopDelay, PerformanceObserver, performance } from 'node:perf_hooks'
import v8 from 'node:v8'

/** The figures of a process that its health depends on. */
export interface Vitals {
  heapUsedBytes: number
  heapLimitBytes: number
  residentBytes: number
  /** How late timers ran, 99th percentile of the last minute or of the time since it was last read. */
  eventLoopLagP99Ms: number
  openFiles: number
  openFilesMax: number
  uptimeSeconds: number
}

/** Interval of the measurement. It is coarse, so that an idle process hardly wakes. */
const resolutionMs = 50
/** After this time the measurement of the event loop starts again. */
const windowMs = 60_000

const gcKinds: Readonly<Record<number, string>> = {
  1: 'scavenge',
  2: 'minor',
  4: 'major',
  8: 'incremental',
  16: 'weak',
}

/** Measures the event loop and the garbage collector of this process from its start. Created once. */
class ProcessObserver {
  readonly #delay = monitorEventLoopDelay({ resolution: resolutionMs })
  readonly #collections: Record<string, { count: number; ms: number; max_ms: number }> = {}
  #sinceMs = performance.now()

  constructor() {
    this.#delay.enable()
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) this.#collected((entry as { detail?: unknown }).detail, entry.duration)
    }).observe({ entryTypes: ['gc'] })
  }

  #collected(detail: unknown, ms: number): void {
    const kind = gcKinds[(detail as { kind?: number } | undefined)?.kind ?? 0] ?? 'other'
    const sums = this.#collections[kind] ?? { count: 0, ms: 0, max_ms: 0 }
    this.#collections[kind] = sums
    sums.count += 1
    sums.ms += ms
    if (ms > sums.max_ms) sums.max_ms = ms
  }

  /** Returns how late timers ran, in milliseconds. */
  lag(): { mean_ms: number; p50_ms: number; p99_ms: number; max_ms: number; over_seconds: number } {
    const late = (nanoseconds: number): number =>
      Number.isFinite(nanoseconds) ? Math.max(Math.round((nanoseconds / 1e6 - resolutionMs) * 100) / 100, 0) : 0
    const nowMs = performance.now()
    const { mean, max } = this.#delay
    const lag = {
      mean_ms: late(mean),
      p50_ms: late(this.#delay.percentile(50)),
      p99_ms: late(this.#delay.percentile(99)),
      max_ms: late(max),
      over_seconds: Math.round((nowMs - this.#sinceMs) / 1000),
    }
    if (nowMs - this.#sinceMs > windowMs) {
      this.#delay.reset()
      this.#sinceMs = nowMs
    }
    return lag
  }

  collections(): Record<string, { count: number; ms: number; max_ms: number }> {
    return structuredClone(this.#collections)
  }
}

let observer: ProcessObserver | undefined

/** Starts measuring, at the first call: that of a process is in its start, so that reports cover what was before them. */
export function observeProcess(): ProcessObserver {
  observer ??= new ProcessObserver()
  return observer
}

export function vitals(): Vitals {
  const { heap_size_limit: heapLimitBytes } = v8.getHeapStatistics()
  const memory = process.memoryUsage()
  return {
    ...{ heapUsedBytes: memory.heapUsed, heapLimitBytes, residentBytes: memory.rss },
    eventLoopLagP99Ms: observeProcess().lag().p99_ms,
    openFiles: readdirSync('/proc/self/fd').length,
    openFilesMax: openFilesMax(),
    uptimeSeconds: Math.round(process.uptime()),
  }
}

/** Soft limit of open descriptors, of proc_pid_limits(5). */
export const openFilesMax = (): number =>
  Number(/^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1] ?? Number.NaN)

/** Counts open descriptors by kind, such as `socket` or `file`; their targets are not reported. */
export function descriptorsByKind(): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const name of readdirSync('/proc/self/fd')) {
    const kind = kindOf(name)
    if (kind !== undefined) counts[kind] = (counts[kind] ?? 0) + 1
  }
  return counts
}

function kindOf(name: string): string | undefined {
  try {
    const target = readlinkSync(`/proc/self/fd/${name}`)
    const [, kind] = /^(?:anon_inode:)?\[?([a-z_]+)\]?(?::|$)/.exec(target) ?? []
    return kind ?? (target.startsWith('/dev/') ? 'device' : 'file')
  } catch {
    return undefined // Closed meanwhile, as the one that lists the directory.
  }
}

/** Processor time, load and throttling by the cgroup of this process. */
export function processorFigures(): object {
  const used = process.cpuUsage()
  return {
    cpu_user_seconds: used.user / 1e6,
    cpu_system_seconds: used.system / 1e6,
    load_average: loadavg(),
    processors: availableParallelism(),
    event_loop: eventLoopUse(),
    cgroup: cgroupFile('cpu.stat'),
  }
}

/** How long the event loop was idle and active since the start of this process; the utilization is a share of 0 to 1. */
export function eventLoopUse(): { idle_ms: number; active_ms: number; utilization: number } {
  const { idle, active, utilization } = performance.eventLoopUtilization()
  const share = Math.round(utilization * 1000) / 1000
  return { idle_ms: Math.round(idle), active_ms: Math.round(active), utilization: share }
}

/** Fields of a file in the cgroup of this process; `null` where there is no unified hierarchy. */
export function cgroupFile(name: string): Record<string, number> | null {
  try {
    const path = /^0::(.*)$/m.exec(readFileSync('/proc/self/cgroup', 'latin1'))?.[1] ?? '/'
    const text = readFileSync(`/sys/fs/cgroup${path}/${name}`, 'latin1')
    const fields = text.split('\n').map((line) => line.split(' '))
    return Object.fromEntries(fields.flatMap(([key, value]) => (key && value ? [[key, Number(value)]] : [])))
  } catch {
    return null
  }
}
