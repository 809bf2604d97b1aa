import { describe, expect, it } from 'vitest'
import type { JobState } from '../../../src/base/background-job.ts'
import { assess, assessAll, type HealthFigures, type Subsystem, subsystems } from '../../../src/core/runtime/health.ts'
import type { Vitals } from '../../../src/observe/process-vitals.ts'
import type { EngineReport } from '../../../src/runner/protocol/messages.ts'

const vitals: Vitals = {
  ...{ heapUsedBytes: 40, heapLimitBytes: 100, residentBytes: 60, eventLoopLagP99Ms: 2 },
  ...{ openFiles: 50, openFilesMax: 1_000, uptimeSeconds: 60 },
}
const engine: EngineReport = {
  slots: { ready: 2, idle: 1, busy: 3, undying: 0, max: 32, ready_wanted: 2, made: 20, failed: 0, jails_waiting: 1 },
  ...{ trouble: null, queue: { running: 3, waiting: 0 }, runs: {}, runtime: 'crun 1.15', vulnerabilities: [] },
  storage: { mounted: 5, used: 2, mounted_max: 200, free_bytes: 100, reserve_bytes: 10 },
  memory_is_short: false,
}
const job: JobState = {
  ...{ runs: 5, failures: 0, failing: 0, lastStartedAt: null, lastMs: 1, lastProblem: null },
  ...{ isRunning: false, isPaused: false },
}
const disk = { total_bytes: 1_000, free_bytes: 600, free: 0.6, free_inodes: 1_000 }
const runs = {
  ...{ runs: 100, by_ending: {}, by_language: {}, out_of_memory_rate: 0, failure_rate: 0 },
  ...{ queue_wait_p50_ms: 0, queue_wait_p99_ms: 1, duration_p50_ms: 5, duration_p99_ms: 9 },
}

/** A server in which nothing is wrong. */
const healthy: HealthFigures = {
  ...{ notReady: null, front: vitals, runner: vitals, engine, runs, queueWaitMaxMs: 30_000 },
  database: { problem: null, walBytes: 4_096 },
  disks: { home: disk },
  jobs: { delete_expired: job },
  upstreams: { 'acme/notes': { calls: 9, failing: 0 } },
  crashes: {},
  packagesFailed: [],
  slow: { queries: 0, requests: 0, outbound: 0 },
  answers: { calls: 100, failures: 0 },
  connections: { open: 5, max: 8_192 },
  errors: 0,
}

const slots = (changed: Partial<EngineReport['slots']>): Partial<HealthFigures> => ({
  engine: { ...engine, slots: { ...engine.slots, ...changed } },
})

/** What is wrong, and the issue that it must raise. */
const cases: readonly [code: string, severity: string, subsystem: Subsystem, wrong: Partial<HealthFigures>][] = [
  ['RUNNER_DOWN', 'critical', 'runtime', { runner: null, engine: null }],
  ['HEAP_PRESSURE', 'warning', 'runtime', { front: { ...vitals, heapUsedBytes: 86 } }],
  ['HEAP_CRITICAL', 'critical', 'runtime', { runner: { ...vitals, heapUsedBytes: 96 } }],
  ['EVENT_LOOP_LAG', 'warning', 'runtime', { front: { ...vitals, eventLoopLagP99Ms: 150 } }],
  ['EVENT_LOOP_LAG', 'critical', 'runtime', { runner: { ...vitals, eventLoopLagP99Ms: 1_500 } }],
  ['FD_HIGH', 'warning', 'runtime', { front: { ...vitals, openFiles: 850 } }],
  ['DRIVER_UNAVAILABLE', 'critical', 'executors', { notReady: 'no slot can be created' }],
  ['SANDBOX_POOL_EMPTY', 'warning', 'executors', slots({ ready: 0, idle: 0 })],
  ['SANDBOX_POOL_SATURATED', 'warning', 'executors', slots({ busy: 32 })],
  ['SANDBOX_START_FAILURES', 'warning', 'executors', slots({ made: 18, failed: 2 })],
  ['SANDBOX_ORPHANS', 'warning', 'executors', slots({ undying: 1 })],
  ['SANDBOX_ORPHANS', 'critical', 'executors', slots({ undying: 32 })],
  ['MEMORY_LOW', 'warning', 'executors', { engine: { ...engine, memory_is_short: true } }],
  ['QUEUE_WAIT_HIGH', 'warning', 'executors', { runs: { ...runs, queue_wait_p99_ms: 4_000 } }],
  ['SANDBOX_OOM_RATE', 'warning', 'sandboxes', { runs: { ...runs, out_of_memory_rate: 0.2 } }],
  ['SANDBOX_FAILURE_RATE', 'critical', 'sandboxes', { runs: { ...runs, failure_rate: 0.3 } }],
  ['PACKAGES_FAILED', 'warning', 'sandboxes', { packagesFailed: ['analysis'] }],
  ['ISOLATION_DEGRADED', 'info', 'sandboxes', { engine: { ...engine, vulnerabilities: ['mds'] } }],
  ['DS_UNWRITABLE', 'critical', 'datasources', { database: { problem: 'the disk is full', walBytes: 0 } }],
  ['DS_WAL_LARGE', 'warning', 'datasources', { database: { problem: null, walBytes: 300 * 1024 * 1024 } }],
  ['PERF_SLOW_QUERIES', 'warning', 'datasources', { slow: { queries: 30, requests: 0, outbound: 0 } }],
  ['DISK_LOW', 'warning', 'disks', { disks: { home: { ...disk, free: 0.1 } } }],
  ['DISK_LOW', 'critical', 'disks', { disks: { home: { ...disk, free: 0.04 } } }],
  ['DISK_RESERVE_USED', 'critical', 'disks', { engine: { ...engine, storage: { ...engine.storage!, free_bytes: 5 } } }],
  ['MOUNTS_SATURATED', 'warning', 'disks', { engine: { ...engine, storage: { ...engine.storage!, used: 190 } } }],
  ['REAPER_STALLED', 'warning', 'schedulers', { jobs: { delete_expired: { ...job, failing: 3, lastProblem: 'x' } } }],
  ['SCHEDULER_TASK_PAUSED', 'warning', 'schedulers', { jobs: { delete_expired: { ...job, isPaused: true } } }],
  ['WEB_ERROR_RATE', 'warning', 'webServer', { answers: { calls: 100, failures: 6 } }],
  ['WEB_CONNECTIONS_HIGH', 'warning', 'webServer', { connections: { open: 7_000, max: 8_192 } }],
  ['PERF_SLOW_REQUESTS', 'warning', 'webServer', { slow: { queries: 0, requests: 30, outbound: 0 } }],
  ['MCP_UPSTREAM_DOWN', 'warning', 'upstreams', { upstreams: { 'acme/notes': { calls: 9, failing: 6 } } }],
  ['MCP_UPSTREAM_DOWN', 'warning', 'upstreams', { crashes: { 'acme/notes': 5 } }],
  ['PERF_SLOW_HTTP', 'warning', 'upstreams', { slow: { queries: 0, requests: 0, outbound: 30 } }],
  ['LOG_ERRORS', 'warning', 'logging', { errors: 3 }],
]

describe('the health of a server', () => {
  it('is perfect if nothing is wrong', () => {
    const scores = Object.fromEntries(subsystems.map((name) => [name, 100]))
    expect(assessAll(healthy)).toEqual({
      ...{ status: 'healthy', score: 100, issues: [], subsystems: scores },
      scoreBreakdown: { base: 100, deductions: [] },
    })
  })

  it.each(cases)('%s is a %s of %s', (code, severity, subsystem, wrong) => {
    const figures = { ...healthy, ...wrong }
    const [issue] = assess(subsystem, figures).issues
    expect(issue).toMatchObject({
      code,
      severity,
      entity: expect.any(String),
      suggestedAction: expect.stringMatching(/\.$/),
    })
    expect(Object.keys(issue!.entityMetrics).length).toBeGreaterThan(0)
    const whole = assessAll(figures)
    expect(whole.issues.map((one) => one.code)).toContain(`${subsystem}:${code}`)
    expect(whole.score).toBe(assess(subsystem, figures).score)
    // Nothing else is blamed for it.
    expect(whole.issues).toHaveLength(1)
  })

  it('deducts for each issue, and is that of the worst part', () => {
    const report = assessAll({ ...healthy, ...slots({ undying: 1, busy: 32 }), errors: 1 })
    expect(report.subsystems).toMatchObject({ executors: 50, logging: 75, disks: 100 })
    expect(report).toMatchObject({ status: 'warning', score: 50 })
    expect(report.scoreBreakdown.deductions).toContainEqual({
      ...{ code: 'logging:LOG_ERRORS', severity: 'warning', penalty: 25 },
    })
  })

  it('does not judge shares of a few runs, slots or responses', () => {
    const few = { ...runs, runs: 3, out_of_memory_rate: 1, failure_rate: 1 }
    const wrong = { ...slots({ made: 1, failed: 1 }), runs: few, answers: { calls: 4, failures: 4 } }
    expect(assessAll({ ...healthy, ...wrong }).issues).toEqual([])
  })

  it('names tools and commands that exist in its suggested actions', async () => {
    const { findRuntimeTool } = await import('../../../src/tools/runtime/tools.ts')
    for (const [, , subsystem, wrong] of cases) {
      for (const { suggestedAction } of assess(subsystem, { ...healthy, ...wrong }).issues) {
        const named = suggestedAction.match(/\b[a-z]+_(?:get|run|resume|search|read)_\w+/g) ?? []
        expect(named.filter((name) => findRuntimeTool(name) === undefined)).toEqual([])
      }
    }
  })
})
