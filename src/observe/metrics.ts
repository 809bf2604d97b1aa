import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import { type NetworkKind, type NetworkTotals, networkKinds } from '../base/network.ts'
import type { PackageCacheTotals } from '../base/package-cache.ts'
import type { Ending, Language, Timings } from '../base/run.ts'
import { BoundedLabel } from './bounded-label.ts'
import { Observations } from './observations.ts'
import type { SpanOutcome } from './otlp.ts'
import { PackageMetrics } from './package-metrics.ts'
import { PreviewMetrics } from './preview-metrics.ts'
import { type ProcessFigures, processFigures } from './process-figures.ts'
import { spansOf } from './run-spans.ts'
import { RuntimeMetrics, type RuntimeSnapshot } from './runtime-metrics.ts'
import type { Tracing } from './tracing.ts'

/** Status values that a runner reports. */
export interface RunnerFigures {
  /** Runs in the queue. */
  waiting: number
  /** Runs that have one. */
  running: number
  /** `undying`: used slots that could not be removed yet. */
  slots: { ready: number; idle: number; busy: number; undying: number }
  /** Prewarmed jails. */
  jailsWaiting: number
  /** Mounted threads and volumes, used or kept warm; 0 without storage. */
  filesystemsMounted: number
  /** On the disk of threads and volumes; absent where there is no storage. */
  storageFreeBytes?: number
  /** Absent before the first connection. */
  network?: Record<NetworkKind, NetworkTotals>
  /** Absent without a package cache, and before the first connection. */
  packages?: PackageCacheTotals
  process: ProcessFigures
}

/** What the API server has open. */
export interface FrontFigures {
  connections: number
  /** Requests that are being answered, and streams. */
  requests: number
  /** Of bodies, and of responses that are not read. */
  bufferBytes: number
  /** Connections to programs behind previews. */
  previews: number
}

/** Maximum number of upstreams with figures of their own: those of one organization. */
const upstreamsMax = 200

/** Maximum number of organizations with figures of their own. */
const orgsMax = 200

/** A run that is counted. */
export interface CountedRun {
  id: string
  language: Language
  orgId: string
}

export type SandboxMetric =
  | 'start'
  | 'failed_start'
  | 'crash'
  | 'idle'
  | 'lifetime'
  | 'key_revoked'
  | 'command'
  | 'code'

export type ProgramMetric = 'start' | 'restart' | 'crash' | 'install' | 'failed_install' | 'lifetime' | 'skipped_line'

const slotStates = ['ready', 'idle', 'busy', 'undying'] as const

/** From a tenth of a millisecond, which a warm slot takes, to the longest run of usual profiles. */
const bucketsSeconds = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
]

/**
 * What an operator's Prometheus reads. Every label has few values, all of them ours or of an administrator: never a key, a
 * thread or anything that a client chose. Nothing here is shared between two instances.
 */
export class Metrics {
  readonly #all = new Registry()
  /** What is remembered of the latest work, for reports. */
  readonly recent = new Observations()
  readonly previews = new PreviewMetrics(this.#all)
  readonly packages = new PackageMetrics(this.#all)
  readonly #runs = this.#counter('runs_total', 'Runs that ended, by language and kind of ending.', [
    'language',
    'ending',
  ])
  readonly #refused = this.#counter('runs_refused_total', 'Calls refused before they ran, by reason.', ['reason'])
  readonly #answers = this.#counter('http_answers_total', 'Answers by method, route and status.', [
    'method',
    'route',
    'status',
  ])
  /** Answers since they were last read: the library's own counting would cost each answer as much as routing it. */
  readonly #answered = new Map<string, { labels: { method: string; route: string; status: number }; count: number }>()
  readonly #phases = new Histogram({
    name: 'glovebox_run_phase_seconds',
    help: 'Where the time of a run went; queue, slot, jail, host, run, drain, record follow one another.',
    labelNames: ['language', 'phase'],
    buckets: bucketsSeconds,
    registers: [this.#all],
  })
  readonly #networkConnections = this.#counter(
    'network_connections_total',
    'Connections to the outside, by whose they were and what was decided.',
    ['of', 'verdict'],
  )
  readonly #networkBytes = this.#counter('network_bytes_total', 'Bytes of these connections.', ['of', 'direction'])
  readonly #networkOpen = this.#gauge('network_connections', 'Open connections to the outside.', ['of'])
  readonly #refusedRequests = this.#counter(
    'requests_refused_total',
    'Requests refused at a limit of connections, requests or memory, by reason.',
    ['reason'],
  )
  readonly #upstreamCalls = this.#counter(
    'upstream_calls_total',
    'Requests to upstream MCP servers by outcome; the server is other beyond the first 200.',
    ['server', 'outcome'],
  )
  readonly #upstreamSeconds = this.#counter(
    'upstream_call_seconds_total',
    'Duration of the requests to upstream MCP servers, to the end of the response.',
    ['server'],
  )
  readonly #upstreamBytes = this.#counter('upstream_bytes_total', 'Bytes of requests and responses of upstreams.', [
    'server',
  ])
  readonly #programEvents = this.#counter('upstream_program_events_total', 'Changes of upstream programs, by kind.', [
    'event',
  ])
  readonly #programs = this.#gauge('upstream_programs', 'Upstream programs that run.')
  readonly #upstreams = new BoundedLabel(upstreamsMax)
  readonly #orgRuns = this.#counter(
    'org_runs_total',
    'Runs that ended, by organization; it is other beyond the first 200.',
    ['org'],
  )
  readonly #orgCpu = this.#counter('org_cpu_seconds_total', 'Processor time of runs, by organization.', ['org'])
  readonly #orgs = new BoundedLabel(orgsMax)
  readonly #sandboxEvents = this.#counter('sandbox_events_total', 'Changes of named sandboxes, by kind.', ['event'])
  readonly #spans = this.#counter('trace_spans_total', 'Spans by whether the collector took them.', ['outcome'])
  readonly #connections = this.#gauge('connections', 'Open connections.')
  readonly #openRequests = this.#gauge('requests_open', 'Open requests and streams.')
  readonly #bufferBytes = this.#gauge('buffer_bytes', 'Memory of request bodies and of responses that were not read.')
  readonly #runnerUp = this.#gauge('runner_up', '1 if a runner is connected; its other metrics are absent otherwise.')
  readonly #waiting = this.#gauge('queue_waiting', 'Runs that wait for a turn.')
  readonly #running = this.#gauge('runs_running', 'Runs that have their turn.')
  readonly #slots = this.#gauge('slots', 'Slots by state; undying ones could not be removed yet.', ['state'])
  readonly #jails = this.#gauge('jails_waiting', 'Jails that were made ahead and wait for their run.')
  readonly #mounted = this.#gauge('filesystems_mounted', 'Threads and volumes that are mounted, used or kept warm.')
  readonly #storageFree = this.#gauge('storage_free_bytes', 'Free space on the disk of threads and volumes.')
  readonly #runtime = new RuntimeMetrics()
  readonly #cpu = this.#counter('process_cpu_seconds_total', 'Processor time since its start.', ['part'])
  readonly #busy = this.#counter(
    'process_event_loop_busy_seconds_total',
    'Time in which its event loop was not idle.',
    ['part'],
  )
  readonly #resident = this.#gauge('process_resident_memory_bytes', 'Resident memory.', ['part'])
  readonly #heap = this.#gauge('process_heap_used_bytes', 'Memory of the JavaScript heap in use.', ['part'])
  readonly #files = this.#gauge('process_open_files', 'Open descriptors.', ['part'])
  readonly #uptime = this.#gauge('process_uptime_seconds', 'Since its start.', ['part'])

  /** Returns what the API server has open now; set by the server. */
  front: (() => FrontFigures) | undefined

  /** Media type of `text`. */
  get contentType(): string {
    return this.#all.contentType
  }

  /** Records traces; set if there is a collector. */
  tracing: Tracing | undefined

  /** Counts a run that ended. @param timings `null` if nothing was measured. @param cpuTimeMs processor time, in ms. */
  ran({ id, language, orgId }: CountedRun, ending: Ending['kind'], timings: Timings | null, cpuTimeMs = 0): void {
    this.#runs.inc({ language, ending })
    const org = this.#orgs.of(orgId)
    this.#orgRuns.inc({ org })
    this.#orgCpu.inc({ org }, cpuTimeMs / 1000)
    this.recent.runs.add({ language, ending, queueMs: timings?.queueMs ?? 0, totalMs: timings ? totalOf(timings) : 0 })
    if (timings === null) return
    this.tracing?.record(...spansOf(id, language, ending, timings))
    this.#took(language, 'queue', timings.queueMs)
    this.#took(language, 'slot', timings.slotMs)
    this.#took(language, 'jail', timings.jailMs)
    this.#took(language, 'host', timings.hostMs)
    this.#took(language, 'run', timings.runMs)
    this.#took(language, 'drain', timings.drainMs)
    this.#took(language, 'record', timings.recordMs ?? 0)
  }

  /** Counts spans by what happened to them. */
  spans(outcome: SpanOutcome, spans: number): void {
    this.#spans.inc({ outcome }, spans)
  }

  /** Counts a call that was refused before it ran. @param reason the code of the refusal. */
  refused(reason: string): void {
    this.#refused.inc({ reason })
  }

  /** Counts a request that was refused at a limit of the API server. @param reason the code of the refusal. */
  refusedRequest(reason: string): void {
    this.#refusedRequests.inc({ reason })
  }

  /** Counts a request to an upstream. @param server its name, which an administrator chose. */
  calledUpstream(server: string, failed: boolean, latencyMs: number, bytes: number): void {
    const label = this.#upstreams.of(server)
    this.#upstreamCalls.inc({ server: label, outcome: failed ? 'failed' : 'succeeded' })
    this.#upstreamSeconds.inc({ server: label }, latencyMs / 1000)
    this.#upstreamBytes.inc({ server: label }, bytes)
    this.recent.countUpstream(server, latencyMs, failed)
  }

  /** Counts a change of an upstream program. A start after a crash is a restart. */
  program(event: ProgramMetric): void {
    this.#programEvents.inc({ event })
  }

  /** @param running number of sandboxes in which upstream programs run. */
  programs(running: number): void {
    this.#programs.set(running)
  }

  /** Counts a change of a named sandbox. */
  sandbox(event: SandboxMetric): void {
    this.#sandboxEvents.inc({ event })
  }

  /**
   * Counts a response.
   * @param route the registered route, never the requested path.
   * @param ms from the request line to the end of the response; `null` for a stream, which lasts as long as its client wants.
   */
  answered(method: string, route: string, status: number, ms: number | null, traceId: string): void {
    const named = `${method} ${route}`
    const key = `${named} ${status}`
    this.recent.answers.count(status >= 500)
    this.recent.routes.count(named, status, ms ?? 0)
    if (ms !== null) {
      this.recent.requests.count(ms, status >= 500, () => ({ what: named, status, trace_id: traceId }))
    }
    const known = this.#answered.get(key)
    if (known) known.count += 1
    else this.#answered.set(key, { labels: { method, route, status }, count: 1 })
  }

  /** Returns all metrics in the Prometheus text format. @param runner absent if no runner is connected. @param snapshot of reports. */
  async text(runner: RunnerFigures | undefined, snapshot?: RuntimeSnapshot): Promise<string> {
    this.#cpu.reset()
    this.#busy.reset()
    this.#runnerUp.set(runner === undefined ? 0 : 1)
    this.packages.tell(runner?.packages)
    if (runner) this.#tellRunner(runner)
    else this.#forgetRunner()
    this.#tellProcess('front', processFigures())
    if (this.front) this.#tellFront(this.front())
    for (const answered of this.#answered.values()) {
      this.#answers.inc(answered.labels, answered.count)
      answered.count = 0
    }
    const own = await this.#all.metrics()
    return snapshot ? `${own}${await this.#runtime.text(snapshot)}` : own
  }

  #tellFront({ connections, requests, bufferBytes, previews }: FrontFigures): void {
    this.previews.open(previews)
    this.#connections.set(connections)
    this.#openRequests.set(requests)
    this.#bufferBytes.set(bufferBytes)
  }

  #tellRunner(runner: RunnerFigures): void {
    const { slots } = runner
    for (const state of slotStates) this.#slots.set({ state }, slots[state])
    this.#waiting.set(runner.waiting)
    this.#running.set(runner.running)
    this.#jails.set(runner.jailsWaiting)
    this.#mounted.set(runner.filesystemsMounted)
    if (runner.storageFreeBytes !== undefined) this.#storageFree.set(runner.storageFreeBytes)
    if (runner.network) this.#tellNetwork(runner.network)
    this.#tellProcess('runner', runner.process)
  }

  #tellNetwork(network: Record<NetworkKind, NetworkTotals>): void {
    this.#forgetNetwork()
    for (const of of networkKinds) {
      const { open, connections, sentBytes, receivedBytes } = network[of]
      this.#networkOpen.set({ of }, open)
      for (const [verdict, count] of Object.entries(connections)) this.#networkConnections.inc({ of, verdict }, count)
      this.#networkBytes.inc({ of, direction: 'sent' }, sentBytes)
      this.#networkBytes.inc({ of, direction: 'received' }, receivedBytes)
    }
  }

  #forgetNetwork(): void {
    for (const metric of [this.#networkConnections, this.#networkBytes, this.#networkOpen]) metric.reset()
  }

  /** Removes metrics that were not reported, instead of repeating the last value. */
  #forgetRunner(): void {
    for (const state of slotStates) this.#slots.remove({ state })
    for (const gauge of [this.#waiting, this.#running, this.#jails, this.#mounted, this.#storageFree]) gauge.remove()
    this.#forgetNetwork()
    const ofProcess = [this.#resident, this.#heap, this.#files, this.#uptime]
    for (const gauge of ofProcess) gauge.remove({ part: 'runner' })
  }

  #tellProcess(name: 'front' | 'runner', figures: ProcessFigures): void {
    const labels = { part: name }
    this.#cpu.inc(labels, figures.cpuSeconds)
    this.#busy.inc(labels, figures.eventLoopBusySeconds)
    this.#resident.set(labels, figures.residentBytes)
    this.#heap.set(labels, figures.heapUsedBytes)
    this.#files.set(labels, figures.openFiles)
    this.#uptime.set(labels, figures.uptimeSeconds)
  }

  #took(language: Language, phase: string, ms: number): void {
    this.#phases.observe({ language, phase }, ms / 1000)
  }

  #counter<Label extends string>(name: string, help: string, labelNames: Label[]): Counter<Label> {
    return new Counter({ name: `glovebox_${name}`, help, labelNames, registers: [this.#all] })
  }

  #gauge<Label extends string = never>(name: string, help: string, labelNames: Label[] = []): Gauge<Label> {
    return new Gauge({ name: `glovebox_${name}`, help, labelNames, registers: [this.#all] })
  }
}

const totalOf = ({ queueMs, slotMs, jailMs, hostMs, runMs, drainMs }: Timings): number =>
  queueMs + slotMs + jailMs + hostMs + runMs + drainMs
