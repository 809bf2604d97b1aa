import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { Ending, Language, Timings } from '../base/run.ts'
import { type ProcessFigures, processFigures } from './process-figures.ts'

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
  process: ProcessFigures
}

/** What the API server has open. */
export interface FrontFigures {
  connections: number
  /** Requests that are being answered, and streams. */
  requests: number
  /** Of bodies, and of responses that are not read. */
  bufferBytes: number
}

const slotStates = ['ready', 'idle', 'busy', 'undying'] as const

/** From a tenth of a millisecond, which a warm slot takes, to the longest run of usual profiles. */
const bucketsSeconds = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
]

/**
 * What an operator's Prometheus reads. Every label has few values, all of them ours: never an org, a key, a thread or
 * anything that a client chose. Nothing here is shared between two instances.
 */
export class Metrics {
  readonly #all = new Registry()
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
  readonly #refusedRequests = this.#counter(
    'requests_refused_total',
    'Requests refused at a limit of connections, requests or memory, by reason.',
    ['reason'],
  )
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
  readonly #cpu = this.#gauge('process_cpu_seconds_total', 'Processor time since its start.', ['part'])
  readonly #busy = this.#gauge('process_event_loop_busy_seconds_total', 'Time in which its event loop was not idle.', [
    'part',
  ])
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

  /** Counts a run that ended. @param timings `null` if nothing was measured. */
  ran(language: Language, ending: Ending['kind'], timings: Timings | null): void {
    this.#runs.inc({ language, ending })
    if (timings === null) return
    this.#took(language, 'queue', timings.queueMs)
    this.#took(language, 'slot', timings.slotMs)
    this.#took(language, 'jail', timings.jailMs)
    this.#took(language, 'host', timings.hostMs)
    this.#took(language, 'run', timings.runMs)
    this.#took(language, 'drain', timings.drainMs)
    this.#took(language, 'record', timings.recordMs ?? 0)
  }

  /** Counts a call that was refused before it ran. @param reason the code of the refusal. */
  refused(reason: string): void {
    this.#refused.inc({ reason })
  }

  /** Counts a request that was refused at a limit of the API server. @param reason the code of the refusal. */
  refusedRequest(reason: string): void {
    this.#refusedRequests.inc({ reason })
  }

  /** Counts a response. @param route the registered route, never the requested path. */
  answered(method: string, route: string, status: number): void {
    const key = `${method} ${route} ${status}`
    const known = this.#answered.get(key)
    if (known) known.count += 1
    else this.#answered.set(key, { labels: { method, route, status }, count: 1 })
  }

  /** Returns all metrics in the Prometheus text format. @param runner absent if no runner is connected. */
  text(runner: RunnerFigures | undefined): Promise<string> {
    this.#runnerUp.set(runner === undefined ? 0 : 1)
    if (runner) this.#tellRunner(runner)
    else this.#forgetRunner()
    this.#tellProcess('front', processFigures())
    if (this.front) this.#tellFront(this.front())
    for (const answered of this.#answered.values()) {
      this.#answers.inc(answered.labels, answered.count)
      answered.count = 0
    }
    return this.#all.metrics()
  }

  #tellFront({ connections, requests, bufferBytes }: FrontFigures): void {
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
    this.#tellProcess('runner', runner.process)
  }

  /** Removes metrics that were not reported, instead of repeating the last value. */
  #forgetRunner(): void {
    for (const state of slotStates) this.#slots.remove({ state })
    for (const gauge of [this.#waiting, this.#running, this.#jails, this.#mounted, this.#storageFree]) gauge.remove()
    const ofProcess = [this.#cpu, this.#busy, this.#resident, this.#heap, this.#files, this.#uptime]
    for (const gauge of ofProcess) gauge.remove({ part: 'runner' })
  }

  #tellProcess(name: 'front' | 'runner', figures: ProcessFigures): void {
    const labels = { part: name }
    this.#cpu.set(labels, figures.cpuSeconds)
    this.#busy.set(labels, figures.eventLoopBusySeconds)
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
