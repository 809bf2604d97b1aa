import type { BackgroundJob } from '../../base/background-job.ts'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Profile } from '../../base/profile.ts'
import type { SandboxStatus } from '../../base/sandbox.ts'
import { diskUsage, type InspectionTopic, type InspectOptions, inspectProcess } from '../../observe/inspect.ts'
import { type Log, linesOf } from '../../observe/log.ts'
import type { Metrics, RunnerFigures } from '../../observe/metrics.ts'
import { type Vitals, vitals } from '../../observe/process-vitals.ts'
import type { EngineReport, Runner, RunSummary } from '../../runner/protocol/messages.ts'
import type { Store } from '../../store/store.ts'
import type { Admin } from '../admin/admin.ts'
import type { ProgramStatus, UpstreamPrograms } from '../upstreams/programs/programs.ts'
import type { Cache } from './caches.ts'
import { CostlyReports } from './costly-reports.ts'
import { assessAll, type HealthFigures, type Severity } from './health.ts'
import type { SandboxControl } from './sandbox-control.ts'
import { requireTool, type ToolEffect } from './tool-access.ts'

/** One setting as it is in effect; the value of a secret is hidden. */
export interface SettingView {
  name: string
  value: unknown
  default: unknown
  source: string
  meaning: string
}

/** A tool of the server, as reports describe it. */
export interface DescribedTool {
  name: string
  toolset: string
  title: string
  description: string
  inputSchema: object
}

/** What the runtime reports need that core does not have. */
export interface RuntimeFacts {
  version: string
  settings: readonly SettingView[]
  /** Directories whose disks are watched, by name. */
  directories: Readonly<Record<string, string>>
  /** Where heap dumps are written; empty: none are. */
  heapDumpDir: string
  queueWaitMaxMs: number
  connectionsMax: number
  /** The tools of the server, as a profile offers them. */
  tools: (profile: Profile) => readonly DescribedTool[]
}

export const noRuntimeFacts: RuntimeFacts = {
  version: '',
  settings: [],
  directories: {},
  heapDumpDir: '',
  queueWaitMaxMs: 30_000,
  connectionsMax: 8192,
  tools: () => [],
}

export interface RuntimeDeps {
  store: Store
  runner: Runner
  metrics: Metrics
  log: Log
  facts: RuntimeFacts
  jobs: Readonly<Record<string, BackgroundJob>>
  caches: Readonly<Record<string, Cache>>
  sandboxes: SandboxControl
  /** Upstream programs that run. */
  programs: Pick<UpstreamPrograms, 'list' | 'crashing'>
  /** The profile named `default`. */
  profile: Profile
  /** Why no run can start. */
  notReady: () => string | null
}

/** The processes of the server that reports can be requested from. */
export const processNames = ['front', 'runner'] as const
export type ProcessName = (typeof processNames)[number]

/** Issues are derived from the work of this time. */
export const recentMs = 10 * 60_000
/** Upstreams whose crashes are reported, those with the most. */
const crashingMax = 50

/** Profiles in one issue. */
const packagesFailedMax = 50

/** Reports whose making blocks the process, and how long each is returned again, in milliseconds. */
const costlyMs: Partial<Record<InspectionTopic, number>> = { allocations: 5 * 60_000, stacks: 60_000 }

/** Entries of a report that is kept. */
const topMax = 100

/** @returns the report with at most `top` entries in each of its lists. */
const shortened = (report: object, top: number | undefined): object =>
  Object.fromEntries(
    Object.entries(report).map(([name, value]) => [name, Array.isArray(value) ? value.slice(0, top) : value]),
  )

async function ofProcesses(
  process: ProcessName | undefined,
  front: () => Promise<object>,
  runner: () => Promise<object>,
): Promise<Partial<Record<ProcessName, object>>> {
  switch (process) {
    case 'front':
      return { front: await front() }
    case 'runner':
      return { runner: await runner() }
    case undefined: {
      const [ofFront, ofRunner] = await Promise.all([front(), orUnavailable(runner())])
      return { front: ofFront, runner: ofRunner }
    }
  }
}

/** Looks inside the running server. Who may call what is decided by `call`, for every front door. */
export class Runtime {
  readonly #deps: RuntimeDeps
  /** The expensive tool that is running. */
  #expensive: string | undefined
  readonly #costly = new CostlyReports()

  constructor(deps: RuntimeDeps) {
    this.#deps = deps
  }

  get facts(): RuntimeFacts {
    return this.#deps.facts
  }

  get metrics(): Metrics {
    return this.#deps.metrics
  }

  get store(): Store {
    return this.#deps.store
  }

  get jobs(): Readonly<Record<string, BackgroundJob>> {
    return this.#deps.jobs
  }

  get caches(): Readonly<Record<string, Cache>> {
    return this.#deps.caches
  }

  /** The tools of the server, as the default profile offers them. */
  get tools(): readonly DescribedTool[] {
    return this.#deps.facts.tools(this.#deps.profile)
  }

  /** Returns the runs that have not ended. @throws Refusal `unavailable` while no runner is connected. */
  async activeRuns(): Promise<RunSummary[]> {
    return (await this.#deps.runner.list()).filter(({ state }) => state !== 'ended')
  }

  /** Returns the named sandboxes that are not stopped. @throws Refusal `unavailable` while no runner is connected. */
  sandboxes(): Promise<SandboxStatus[]> {
    return this.#deps.runner.sandboxes.list()
  }

  /** What administrators do to named sandboxes. */
  get sandboxControl(): SandboxControl {
    return this.#deps.sandboxes
  }

  /** Returns the sandboxes of upstream programs that run. */
  get programs(): readonly ProgramStatus[] {
    return this.#deps.programs.list()
  }

  get profile(): Profile {
    return this.#deps.profile
  }

  get log(): Log {
    return this.#deps.log
  }

  /** Why no run can start; `null` if runs can start. */
  get notReady(): string | null {
    return this.#deps.notReady()
  }

  get runner(): Runner {
    return this.#deps.runner
  }

  /**
   * Calls a tool for an administrator, and records it in the audit log if it writes or can return secrets.
   * @param given its arguments, as they are recorded.
   * @throws Refusal `forbidden`, `runtime_busy`, and whatever the work throws.
   */
  async call<Result>(
    admin: Admin,
    tool: ToolEffect,
    given: object,
    work: () => Result | Promise<Result>,
  ): Promise<Result> {
    requireTool(admin, tool)
    if (tool.isExpensive && this.#expensive !== undefined) {
      throw new Refusal('runtime_busy', { tool: this.#expensive, retryAfterSeconds: 5 })
    }
    // Before the work: also an attempt that fails is on record.
    if (tool.isWrite || tool.isSensitive) await this.#record(admin, tool, given)
    if (!tool.isExpensive) return await work()
    this.#expensive = tool.name
    try {
      return await work()
    } finally {
      this.#expensive = undefined
    }
  }

  async #record(admin: Admin, { name }: ToolEffect, given: object): Promise<void> {
    const line = { at: timestamp(), orgId: null, actor: admin.id, action: 'runtime.call', target: name }
    await this.#deps.store.audited({ ...line, details: { ...given }, personal: null, subject: null }, async () => {})
  }

  /**
   * Returns a report of this process, of the runner, or of both; of what blocks a process the last one, if it is less than
   * some minutes old.
   * @throws Refusal `unavailable` for a missing runner.
   */
  async inspect(
    topic: InspectionTopic,
    process: ProcessName | undefined,
    options: InspectOptions = {},
  ): Promise<Partial<Record<ProcessName, object>>> {
    const keptMs = costlyMs[topic]
    if (keptMs !== undefined) return this.#inspectOnce(topic, keptMs, process, options)
    const front = () => inspectProcess(topic, options, this.#deps.log)
    const runner = () => this.#deps.runner.inspect(topic, options)
    return ofProcesses(process, front, runner)
  }

  /** The last report of each process is shared by all callers, so it has more entries than most of them want. */
  async #inspectOnce(
    topic: InspectionTopic,
    keptMs: number,
    process: ProcessName | undefined,
    { top, ...options }: InspectOptions,
  ): Promise<Partial<Record<ProcessName, object>>> {
    const { runner, log } = this.#deps
    const long = { ...options, top: topMax }
    const front = async () =>
      shortened(await this.#costly.get(`${topic} front`, keptMs, () => inspectProcess(topic, long, log)), top)
    const { runnerId, epoch } = runner.identity ?? {}
    const ofRunner = async () =>
      shortened(await this.#costly.get(`${topic} ${runnerId} ${epoch}`, keptMs, () => runner.inspect(topic, long)), top)
    return ofProcesses(process, front, ofRunner)
  }

  /** Returns what the runner knows of its slots; `null` while none is connected. */
  async engine(): Promise<EngineReport | null> {
    return orNull(this.#deps.runner.inspect('engine', {})) as Promise<EngineReport | null>
  }

  async figures(): Promise<HealthFigures> {
    const { runner, metrics, facts, store, jobs, log } = this.#deps
    const [ofRunner, engine, logOfRunner, database, disks] = await Promise.all([
      orNull(runner.inspect('vitals', {})),
      this.engine(),
      orNull(runner.inspect('log_info', {})),
      store.size(),
      diskUsage(facts.directories),
    ])
    const { recent } = metrics
    return {
      notReady: this.#deps.notReady(),
      front: vitals(),
      runner: ofRunner as Vitals | null,
      engine,
      runs: recent.runs.figures(recentMs),
      queueWaitMaxMs: facts.queueWaitMaxMs,
      database: { problem: store.diskProblem ?? null, walBytes: database.walBytes },
      disks,
      jobs: Object.fromEntries(Object.entries(jobs).map(([name, job]) => [name, job.state])),
      upstreams: Object.fromEntries(recent.upstreams),
      crashes: await this.#crashes(),
      packagesFailed: await store.packageLayers.failedProfiles(packagesFailedMax),
      slow: {
        queries: recent.queries.recent(recentMs),
        requests: recent.requests.recent(recentMs),
        outbound: recent.outbound.recent(recentMs),
      },
      answers: recent.answers.recent,
      connections: { open: metrics.front?.().connections ?? 0, max: facts.connectionsMax },
      errors:
        linesOf(log).recentErrors(recentMs) + ((logOfRunner as { recent_errors?: number } | null)?.recent_errors ?? 0),
    }
  }

  /** Returns how often in a row the programs of upstreams have ended by themselves, by name. */
  async #crashes(): Promise<Record<string, number>> {
    const { programs, store } = this.#deps
    const crashing = programs.crashing(recentMs).slice(0, crashingMax)
    const found = await Promise.all(
      crashing.map(async ({ upstreamId, crashes }) => ({ row: await store.upstreams.byId(upstreamId), crashes })),
    )
    // The most last, which replace those of another organization or credential.
    return Object.fromEntries(
      found.flatMap(({ row, crashes }) => (row?.enabled === 1 ? [[row.name, crashes]] : [])).reverse(),
    )
  }

  /** Returns all metrics in the Prometheus text format. */
  async metricsText(): Promise<string> {
    const { metrics, runner, facts, store } = this.#deps
    const [stats, figures, database] = await Promise.all([orNull(runner.stats()), this.figures(), store.size()])
    const { score, issues } = assessAll(figures)
    const count = (severity: Severity) => issues.filter((issue) => issue.severity === severity).length
    return metrics.text((stats ?? undefined) as RunnerFigures | undefined, {
      ...{ version: facts.version, recent: metrics.recent, front: figures.front, runner: figures.runner },
      ...{ slots: figures.engine?.slots ?? null, database, disks: figures.disks },
      health: { score, warning: count('warning'), critical: count('critical') },
    })
  }

  /** Assesses the whole server. */
  async health() {
    return assessAll(await this.figures())
  }
}

/** Replaces the refusal of a runner that is not connected. */
async function orNull(report: Promise<object>): Promise<object | null> {
  try {
    return await report
  } catch (error) {
    if (error instanceof Refusal) return null
    throw error
  }
}

const orUnavailable = async (report: Promise<object>): Promise<object> =>
  (await orNull(report)) ?? { unavailable: 'no runner is connected' }
