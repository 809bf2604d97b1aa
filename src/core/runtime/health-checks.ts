import type { Vitals } from '../../observe/process-vitals.ts'
import type { HealthFigures, HealthIssue, Severity, Subsystem } from './health.ts'

/** Limits at which a figure becomes an issue. Shares are 0 to 1. */
export const thresholds = {
  /** Of the heap limit; beyond it V8 collects garbage more and more often. */
  heap: { warning: 0.85, critical: 0.95 },
  /** 99th percentile, in milliseconds: what a request waits for the process at most. */
  eventLoopLagMs: { warning: 100, critical: 1_000 },
  /** Of the descriptors that a process may open. */
  openFiles: { warning: 0.8, critical: 0.95 },
  /** Used share of a disk. */
  diskUsed: { warning: 0.85, critical: 0.95 },
  /** Busy share of `slots_max`. */
  slotsBusy: { warning: 0.95, critical: 1.01 },
  /** Share of slots that could not be created. */
  slotFailures: { warning: 0.05, critical: 0.5 },
  /** Share of runs. */
  outOfMemory: { warning: 0.1, critical: 0.5 },
  runFailures: { warning: 0.02, critical: 0.2 },
  /** 99th percentile of the wait in the queue as a share of `queue_wait_s`. */
  queueWait: { warning: 0.1, critical: 0.5 },
  /** Share of responses with status 500 or higher. */
  responseErrors: { warning: 0.05, critical: 0.25 },
  /** Of `connections_max`. */
  connections: { warning: 0.8, critical: 0.95 },
  /** Mounted share of `threads_mounted_max` that is in use. */
  mounts: { warning: 0.9, critical: 1 },
  /** Failures of a job in a row. */
  jobFailures: { warning: 2, critical: 20 },
  /** Failed calls of an upstream, or crashes of its program, in a row; the circuit breaker opens at the first value. */
  upstreamFailures: { warning: 5, critical: 50 },
  /** Slow calls in ten minutes. */
  slowCalls: { warning: 20, critical: 1_000 },
  /** Bytes; the log is truncated at 32 MiB when nothing holds it open. */
  walBytes: { warning: 256 * 1024 * 1024, critical: 2 * 1024 * 1024 * 1024 },
  /** Errors in ten minutes. */
  logErrors: { warning: 1, critical: 100 },
} as const satisfies Record<string, { warning: number; critical: number }>

/** Runs and slots below which a share says nothing. */
const sampleMin = 10

type Issue = Omit<HealthIssue, 'severity'>

/** Returns the issue if a value has reached a threshold. */
function above(value: number, name: keyof typeof thresholds, issue: Issue): HealthIssue[] {
  const { warning, critical } = thresholds[name]
  if (!(value >= warning)) return []
  return [{ severity: value >= critical ? 'critical' : 'warning', ...issue }]
}

const when = (isSo: boolean, severity: Severity, issue: Issue): HealthIssue[] => (isSo ? [{ severity, ...issue }] : [])

const percent = (share: number): string => `${Math.round(share * 100)} %`
const mib = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`

type Check = (figures: HealthFigures) => HealthIssue[]

/** The checks of each part of the server. */
export const checks: Readonly<Record<Subsystem, Check>> = {
  runtime: ({ front, runner }) => [
    ...ofProcess('front', front),
    ...(runner === null ? runnerDown() : ofProcess('runner', runner)),
  ],
  executors: ({ engine, runs, queueWaitMaxMs, notReady, runner }) => [
    ...when(notReady !== null && runner !== null, 'critical', {
      code: 'DRIVER_UNAVAILABLE',
      message: `No run can start: ${notReady}.`,
      suggestedAction: 'Follow the reason, and run glovebox doctor on the machine of the server.',
      entity: 'runner',
      entityMetrics: { ready: false },
    }),
    ...(engine === null ? [] : ofPool(engine)),
    ...above(runs.queue_wait_p99_ms / queueWaitMaxMs, 'queueWait', {
      code: 'QUEUE_WAIT_HIGH',
      message: `Runs waited up to ${Math.round(runs.queue_wait_p99_ms)} ms in the queue.`,
      suggestedAction: 'Raise runs_max and slots_max if the machine has free processors, or add a machine.',
      entity: 'queue',
      entityMetrics: { waiting: engine?.queue.waiting ?? null, p99_ms: runs.queue_wait_p99_ms },
    }),
  ],
  sandboxes: ({ runs, engine, packagesFailed }) => [
    ...above(runs.runs < sampleMin ? 0 : runs.out_of_memory_rate, 'outOfMemory', {
      code: 'SANDBOX_OOM_RATE',
      message: `${percent(runs.out_of_memory_rate)} of the latest runs used all of their memory.`,
      suggestedAction: 'Raise memory in the profiles that these runs use; app_get_all lists the latest endings.',
      entity: 'runs',
      entityMetrics: { runs: runs.runs, rate: runs.out_of_memory_rate },
    }),
    ...above(runs.runs < sampleMin ? 0 : runs.failure_rate, 'runFailures', {
      code: 'SANDBOX_FAILURE_RATE',
      message: `${percent(runs.failure_rate)} of the latest runs failed through the server, not through their program.`,
      suggestedAction: 'Read the errors of the runner with logging_get_last_error.',
      entity: 'runs',
      entityMetrics: { runs: runs.runs, rate: runs.failure_rate },
    }),
    ...when(packagesFailed.length > 0, 'warning', {
      code: 'PACKAGES_FAILED',
      message: `The packages of profiles could not be installed: ${packagesFailed.slice(0, 5).join(', ')}. Their calls are refused.`,
      suggestedAction:
        'Read the reasons with logging_search_entries (keyword "could not be installed"). Correct the lists of packages, or the network.',
      entity: packagesFailed[0] ?? '',
      entityMetrics: { profiles: packagesFailed.length },
    }),
    ...when((engine?.vulnerabilities.length ?? 0) > 0, 'info', {
      code: 'ISOLATION_DEGRADED',
      message: `The kernel does not mitigate processor vulnerabilities: ${engine?.vulnerabilities.join(', ')}.`,
      suggestedAction: 'Update the microcode and the kernel, and boot without mitigations=off.',
      entity: 'machine',
      entityMetrics: { vulnerabilities: engine?.vulnerabilities.length ?? 0 },
    }),
  ],
  datasources: ({ database, slow }) => [
    ...when(database.problem !== null, 'critical', {
      code: 'DS_UNWRITABLE',
      message: `The database cannot be written: ${database.problem}.`,
      suggestedAction: 'Free space on the disk of home, or repair it. The server continues by itself.',
      entity: 'metadata',
      entityMetrics: { writable: false },
    }),
    ...above(database.walBytes, 'walBytes', {
      code: 'DS_WAL_LARGE',
      message: `The write-ahead log of the database has ${mib(database.walBytes)}.`,
      suggestedAction: 'End programs that keep the database open, such as backups that do not finish.',
      entity: 'metadata',
      entityMetrics: { wal_bytes: database.walBytes },
    }),
    ...above(slow.queries, 'slowCalls', {
      code: 'PERF_SLOW_QUERIES',
      message: `${slow.queries} statements were slow in the last ten minutes.`,
      suggestedAction: 'Read them with sql_get_slow_queries, and check the load of the disk.',
      entity: 'metadata',
      entityMetrics: { slow: slow.queries },
    }),
  ],
  disks: ({ disks, engine }) => [
    ...Object.entries(disks).flatMap(([name, disk]) =>
      disk === null
        ? []
        : above(1 - disk.free, 'diskUsed', {
            code: 'DISK_LOW',
            message: `The disk of ${name} has ${percent(disk.free)} free (${mib(disk.free_bytes)}).`,
            suggestedAction: 'Delete threads and old runs, shorten retention, or enlarge the disk.',
            entity: name,
            entityMetrics: { free: disk.free, free_bytes: disk.free_bytes },
          }),
    ),
    ...when(engine?.storage != null && engine.storage.free_bytes < engine.storage.reserve_bytes, 'critical', {
      code: 'DISK_RESERVE_USED',
      message: 'The disk of threads and volumes has less free space than storage_reserve.',
      suggestedAction: 'Delete threads, or enlarge the disk: runs cannot store files until then.',
      entity: 'storage',
      entityMetrics: { free_bytes: engine?.storage?.free_bytes ?? null },
    }),
    ...above(engine?.storage ? engine.storage.used / Math.max(engine.storage.mounted_max, 1) : 0, 'mounts', {
      code: 'MOUNTS_SATURATED',
      message: 'Nearly all places for mounted threads and volumes are in use.',
      suggestedAction: 'Raise threads_mounted_max.',
      entity: 'storage',
      entityMetrics: { used: engine?.storage?.used ?? null, max: engine?.storage?.mounted_max ?? null },
    }),
  ],
  schedulers: ({ jobs }) =>
    Object.entries(jobs).flatMap(([name, job]) => [
      ...above(job.failing, 'jobFailures', {
        code: 'REAPER_STALLED',
        message: `The job ${name} has failed ${job.failing} times in a row: ${job.lastProblem}`,
        suggestedAction: `Remove the cause, then run it with scheduler_run_task.`,
        entity: name,
        entityMetrics: { failing: job.failing },
      }),
      ...when(job.isPaused, 'warning', {
        code: 'SCHEDULER_TASK_PAUSED',
        message: `The job ${name} is paused.`,
        suggestedAction: 'Resume it with scheduler_resume_task.',
        entity: name,
        entityMetrics: { paused: true },
      }),
    ]),
  webServer: ({ answers, connections, slow }) => [
    ...above(answers.calls < sampleMin ? 0 : answers.failures / answers.calls, 'responseErrors', {
      code: 'WEB_ERROR_RATE',
      message: `${percent(answers.failures / Math.max(answers.calls, 1))} of the latest responses had a status of 500 or higher.`,
      suggestedAction:
        'Find the routes with routes_get_all (sortBy errors), and the cause with logging_get_last_error.',
      entity: 'server',
      entityMetrics: { responses: answers.calls, errors: answers.failures },
    }),
    ...above(connections.open / connections.max, 'connections', {
      code: 'WEB_CONNECTIONS_HIGH',
      message: `${connections.open} of ${connections.max} connections are open.`,
      suggestedAction: 'Raise connections_max, or find the client that keeps connections open.',
      entity: 'server',
      entityMetrics: { ...connections },
    }),
    ...above(slow.requests, 'slowCalls', {
      code: 'PERF_SLOW_REQUESTS',
      message: `${slow.requests} requests were slow in the last ten minutes.`,
      suggestedAction: 'Read them with requests_get_slow_requests. Runs that take long are slow requests too.',
      entity: 'server',
      entityMetrics: { slow: slow.requests },
    }),
  ],
  upstreams: ({ upstreams, crashes, slow }) => [
    ...Object.entries(upstreams).flatMap(([name, { calls, failing }]) =>
      above(failing, 'upstreamFailures', {
        code: 'MCP_UPSTREAM_DOWN',
        message: `The last ${failing} calls of the upstream ${name} failed.`,
        suggestedAction: `Examine it with glovebox upstreams test ${name}.`,
        entity: name,
        entityMetrics: { calls, failing },
      }),
    ),
    ...Object.entries(crashes).flatMap(([name, count]) => {
      const { calls, failing } = upstreams[name] ?? { calls: 0, failing: 0 }
      // Failed calls say it already. They are none in a row where each session begins with a call that succeeds.
      if (failing >= thresholds.upstreamFailures.warning) return []
      return above(count, 'upstreamFailures', {
        code: 'MCP_UPSTREAM_DOWN',
        message: `The program of the upstream ${name} has ended by itself ${count} times in a row.`,
        suggestedAction: `Read what it writes with glovebox upstreams test ${name}.`,
        entity: name,
        entityMetrics: { calls, failing, crashes: count },
      })
    }),
    ...above(slow.outbound, 'slowCalls', {
      code: 'PERF_SLOW_HTTP',
      message: `${slow.outbound} calls of upstreams and webhooks were slow in the last ten minutes.`,
      suggestedAction: 'Read them with slow_http_get_calls.',
      entity: 'outbound',
      entityMetrics: { slow: slow.outbound },
    }),
  ],
  logging: ({ errors }) =>
    above(errors, 'logErrors', {
      code: 'LOG_ERRORS',
      message: `${errors} errors were logged in the last ten minutes.`,
      suggestedAction: 'Read them with logging_get_last_error or logging_search_entries.',
      entity: 'log',
      entityMetrics: { errors },
    }),
}

function runnerDown(): HealthIssue[] {
  return when(true, 'critical', {
    code: 'RUNNER_DOWN',
    message: 'No runner is connected: no run can start.',
    suggestedAction: 'The supervisor restarts it. Read why it ended in the log of the service.',
    entity: 'runner',
    entityMetrics: { connected: false },
  })
}

function ofProcess(name: 'front' | 'runner', vitals: Vitals): HealthIssue[] {
  const heap = vitals.heapUsedBytes / vitals.heapLimitBytes
  const files = vitals.openFiles / vitals.openFilesMax
  return [
    ...above(heap, 'heap', {
      code: heap >= thresholds.heap.critical ? 'HEAP_CRITICAL' : 'HEAP_PRESSURE',
      message: `The ${name} uses ${percent(heap)} of its JavaScript heap.`,
      suggestedAction: 'Find what holds memory with node_get_top_allocators; restart the process if it grows on.',
      entity: name,
      entityMetrics: { used_bytes: vitals.heapUsedBytes, limit_bytes: vitals.heapLimitBytes },
    }),
    ...above(vitals.eventLoopLagP99Ms, 'eventLoopLagMs', {
      code: 'EVENT_LOOP_LAG',
      message: `Timers of the ${name} run up to ${Math.round(vitals.eventLoopLagP99Ms)} ms late.`,
      suggestedAction: 'Find what occupies the process with node_get_hot_threads, and check the load of the machine.',
      entity: name,
      entityMetrics: { p99_ms: vitals.eventLoopLagP99Ms },
    }),
    ...above(files, 'openFiles', {
      code: 'FD_HIGH',
      message: `The ${name} has ${vitals.openFiles} of ${vitals.openFilesMax} files open.`,
      suggestedAction: 'Raise the limit of open files of the service, or lower connections_max.',
      entity: name,
      entityMetrics: { open: vitals.openFiles, max: vitals.openFilesMax },
    }),
  ]
}

function ofPool({ slots, trouble, memory_is_short }: NonNullable<HealthFigures['engine']>): HealthIssue[] {
  const attempts = slots.made + slots.failed
  const failed = attempts === 0 ? 0 : slots.failed / attempts
  const metrics = { ready: slots.ready, idle: slots.idle, busy: slots.busy, max: slots.max }
  return [
    ...when(slots.ready_wanted > 0 && slots.ready + slots.idle === 0 && slots.busy < slots.max, 'warning', {
      code: 'SANDBOX_POOL_EMPTY',
      message: 'No slot is ready: the next run waits until one is created.',
      suggestedAction:
        'Raise slots_ready if this lasts, and check slots that cannot be created with executor_get_stats.',
      entity: 'slots',
      entityMetrics: metrics,
    }),
    ...above(slots.busy / slots.max, 'slotsBusy', {
      code: 'SANDBOX_POOL_SATURATED',
      message: `${slots.busy} of ${slots.max} slots are busy.`,
      suggestedAction: 'Raise slots_max and runs_max if the machine has memory and processors for more.',
      entity: 'slots',
      entityMetrics: metrics,
    }),
    ...above(attempts < sampleMin && trouble === null ? 0 : failed, 'slotFailures', {
      code: 'SANDBOX_START_FAILURES',
      message: `${slots.failed} of ${attempts} slots could not be created${trouble === null ? '' : `: ${trouble}`}.`,
      suggestedAction: 'Run glovebox doctor on the machine of the server, and read the log of the runner.',
      entity: 'slots',
      entityMetrics: { made: slots.made, failed: slots.failed },
    }),
    ...when(slots.undying > 0, slots.undying >= slots.max ? 'critical' : 'warning', {
      code: 'SANDBOX_ORPHANS',
      message: `${slots.undying} used slots could not be removed yet.`,
      suggestedAction:
        'Removal is repeated. If it does not succeed, find processes in uninterruptible sleep, and reboot.',
      entity: 'slots',
      entityMetrics: { undying: slots.undying },
    }),
    ...when(memory_is_short, 'warning', {
      code: 'MEMORY_LOW',
      message: 'The machine has less than 8 % of its memory left: idle slots are destroyed.',
      suggestedAction: 'Lower slots_max or runs_max, or add memory.',
      entity: 'machine',
      entityMetrics: metrics,
    }),
  ]
}
