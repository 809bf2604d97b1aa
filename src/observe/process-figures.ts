import { readdirSync } from 'node:fs'

/** What a process has used and holds. */
export interface ProcessFigures {
  /** Since it started: processor time of its own, user and kernel. */
  cpuSeconds: number
  residentBytes: number
  heapUsedBytes: number
  openFiles: number
  uptimeSeconds: number
  /** Since it started: time in which its event loop was not idle. */
  eventLoopBusySeconds: number
}

/** Of the process that calls. */
export function processFigures(): ProcessFigures {
  const used = process.cpuUsage()
  const memory = process.memoryUsage()
  return {
    cpuSeconds: (used.user + used.system) / 1e6,
    residentBytes: memory.rss,
    heapUsedBytes: memory.heapUsed,
    openFiles: readdirSync('/proc/self/fd').length,
    uptimeSeconds: process.uptime(),
    eventLoopBusySeconds: performance.eventLoopUtilization().active / 1000,
  }
}
