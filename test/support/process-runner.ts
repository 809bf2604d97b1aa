import { type ChildProcess, spawn } from 'node:child_process'
import { Refusal } from '../../src/base/errors.ts'
import type { StoredImage } from '../../src/base/image.ts'
import {
  type CancelCause,
  type Ending,
  type Language,
  noTimings,
  type RunEvent,
  type RunInput,
  type RunResult,
  type RunSpec,
} from '../../src/base/run.ts'
import { noSoftware } from '../../src/base/software.ts'
import { type InspectOptions, inspectProcess } from '../../src/observe/inspect.ts'
import { createLog } from '../../src/observe/log.ts'
import type { RunnerFigures } from '../../src/observe/metrics.ts'
import { processFigures } from '../../src/observe/process-figures.ts'
import type {
  EngineReport,
  Runner,
  RunnerStorage,
  RunnerTopic,
  RunSummary,
} from '../../src/runner/protocol/messages.ts'
import type { RunnerNetworks } from '../../src/runner/protocol/network-messages.ts'
import { OutputLog } from '../../src/runner/runs/output-log.ts'
import { type Home, PlainThreads } from './plain-threads.ts'
import { ProcessSandboxes } from './process-sandboxes.ts'

interface Run {
  spec: RunSpec
  process: ChildProcess
  outputLog: OutputLog
  stoppedAs: Ending | undefined
  outputBytes: { stdout: number; stderr: number }
}

const commands: Record<Language, readonly [string, ...string[]]> = {
  python: ['python3', '-I', '-c'],
  node: [process.execPath, '-e'],
  typescript: [process.execPath, '-e'],
  bash: ['bash', '--norc', '-c'],
}

/** A single argument of exec can be no longer: MAX_ARG_STRLEN of the kernel. */
const argumentLimitBytes = 128 * 1024

const imageNamed = (name: string): StoredImage => ({
  ...{
    id: `img_${name}`,
    names: [name],
    source: 'archive',
    digest: '',
    createdAt: '',
    sizeBytes: 0,
    files: 0,
    layers: [],
  },
  config: { env: {}, workdir: '/', user: '', command: [] },
  software: noSoftware,
})

/**
 * A runner without any isolation, for the suites of the front alone: it runs the code as a plain process of this
 * machine. What it keeps and how it replays is the real thing (`runner/runs/output-log.ts`).
 */
export class ProcessRunner implements Runner {
  readiness: Runner['readiness'] = { ready: true }
  software: Runner['software'] = noSoftware
  identity: Runner['identity'] = { runnerId: 'rnr_test', epoch: 1 }
  /** Runs above this number are rejected. */
  maxRuns = 32
  /** Runs that wait, as a refusal by the full queue says. */
  waiting = 0
  readonly acknowledged: string[] = []
  /** Every run that was ever started, by id. */
  readonly specs = new Map<string, RunSpec>()
  readonly files = new PlainThreads()
  readonly storage: RunnerStorage = this.files
  readonly sandboxes = new ProcessSandboxes()
  /** Names of images, whose programs are those of the machine. */
  readonly imageNames = this.sandboxes.imageNames
  readonly images: Runner['images'] = {
    list: async () => [...this.imageNames].map(imageNamed),
    change: async () => Promise.reject(new Refusal('unavailable', { reason: 'this runner stores no images' })),
    remove: async (image) => {
      if (!this.imageNames.delete(image)) throw new Refusal('image_unknown', { image })
    },
    collect: async () => ({ images: 0, layers: 0, bytes: 0 }),
    softwareOf: () => this.software,
    digestOf: (name) => (name === 'default' || this.imageNames.has(name) ? name : undefined),
  }
  readonly #runs = new Map<string, Run>()

  async start(spec: RunSpec, input: RunInput): Promise<void> {
    if (!this.readiness.ready) throw new Refusal('unavailable', { reason: this.readiness.reason })
    if (this.#runs.has(spec.runId)) return
    const running = [...this.#runs.values()].filter((run) => !run.outputLog.ended).length
    if (running >= this.maxRuns)
      throw new Refusal('queue_full', { running, waiting: this.waiting, retryAfterSeconds: 2 })
    const home = spec.thread && this.files.take({ area: 'threads', org: spec.orgId, name: spec.thread.id })
    this.specs.set(spec.runId, spec)
    this.#runs.set(spec.runId, launch(spec, input, home))
  }

  async stats(): Promise<RunnerFigures> {
    if (!this.readiness.ready) throw new Refusal('unavailable', { reason: this.readiness.reason })
    const running = [...this.#runs.values()].filter((run) => !run.outputLog.ended).length
    const slots = { ready: 0, idle: 0, busy: running, undying: 0 }
    return { waiting: 0, running, slots, jailsWaiting: 0, filesystemsMounted: 0, process: processFigures() }
  }

  /** The report on slots, which tests change. */
  engine: EngineReport = {
    slots: { ready: 2, idle: 0, busy: 0, undying: 0, max: 32, ready_wanted: 2, made: 2, failed: 0, jails_waiting: 0 },
    trouble: null,
    queue: { running: 0, waiting: 0 },
    runs: {},
    runtime: 'none',
    vulnerabilities: [],
    storage: null,
    memory_is_short: false,
  }
  readonly #log = createLog({ level: 'info', format: 'json', destination: { write: () => true } })

  async inspect(topic: RunnerTopic, options: InspectOptions): Promise<object> {
    if (!this.readiness.ready) throw new Refusal('unavailable', { reason: this.readiness.reason })
    return topic === 'engine' ? this.engine : inspectProcess(topic, options, this.#log)
  }

  async *attach(runId: string, afterSeq: number): AsyncGenerator<RunEvent, void, undefined> {
    const { outputLog } = this.#known(runId)
    let seq = outputLog.startAfter(afterSeq)
    for (;;) {
      const event = outputLog.after(seq)
      if (event === undefined) {
        await new Promise<void>((changed) => {
          const off = outputLog.onChange(() => {
            off()
            changed()
          })
        })
        continue
      }
      seq = event.seq
      yield event.kind === 'output' ? { ...event, bytes: Uint8Array.from(event.bytes) } : event
      if (event.kind === 'ended') return
    }
  }

  async cancel(runId: string, cause: CancelCause): Promise<void> {
    const run = this.#known(runId)
    if (run.outputLog.ended) throw new Refusal('run_finished', { runId })
    stop(run, { kind: cause })
  }

  async outlive(runId: string): Promise<void> {
    const run = this.#known(runId)
    run.spec = { ...run.spec, detached: true }
  }

  readonly networks: RunnerNetworks = {
    list: async () => {
      const runs = [...this.#runs.values()].filter(({ spec, outputLog }) => spec.network && !outputLog.ended)
      return runs.map(({ spec: { runId, keyId } }) => ({ runId, keyId }))
    },
    change: async (runId, network) => {
      const run = this.#known(runId)
      run.spec = { ...run.spec, network }
    },
  }

  async list(): Promise<RunSummary[]> {
    return [...this.#runs.values()].map(({ spec, outputLog }) => ({
      runId: spec.runId,
      orgId: spec.orgId,
      keyId: spec.keyId,
      detached: spec.detached,
      state: outputLog.ended ? 'ended' : 'running',
    }))
  }

  async acknowledge(runId: string): Promise<void> {
    this.acknowledged.push(runId)
    this.#runs.delete(runId)
  }

  async retireKey(keyId: string): Promise<void> {
    for (const run of this.#runs.values()) if (run.spec.keyId === keyId) stop(run, { kind: 'cancelled' })
  }

  /** The total output of the known runs. */
  writtenBytes(): number {
    return [...this.#runs.values()].reduce((sum, { outputBytes: { stdout, stderr } }) => sum + stdout + stderr, 0)
  }

  /** Simulates a runner process that dies and is replaced: every run is lost. */
  die(): void {
    for (const run of this.#runs.values()) stop(run, { kind: 'failed', reason: 'runner_lost' })
    this.#runs.clear()
    this.identity = { runnerId: 'rnr_test', epoch: (this.identity?.epoch ?? 0) + 1 }
  }

  /** Ends the remaining runs. */
  close(): void {
    for (const run of this.#runs.values()) stop(run, { kind: 'shutdown' })
    this.files.close()
    this.sandboxes.close()
  }

  #known(runId: string): Run {
    const run = this.#runs.get(runId)
    if (!run) throw new Refusal('run_unknown', { runId })
    return run
  }
}

function launch(spec: RunSpec, input: RunInput, home: Home | undefined): Run {
  const [program, ...options] = commands[spec.language]
  const code = Buffer.from(input.code).toString('utf8')
  const argument = code.length < argumentLimitBytes ? code : 'import sys; sys.exit(99)'
  const env = { PATH: process.env.PATH ?? '', LANG: 'C.UTF-8', ...spec.env }
  const child = spawn(program, [...options, argument], { env, detached: true, cwd: home?.path ?? '/tmp' })
  const run: Run = {
    spec,
    process: child,
    outputLog: new OutputLog(spec.limits.outputSoftBytes),
    stoppedAs: undefined,
    outputBytes: { stdout: 0, stderr: 0 },
  }
  const startedMs = performance.now()
  run.outputLog.running()
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream]?.on('data', (bytes: Buffer) => {
      run.outputBytes[stream] += bytes.length
      run.outputLog.append(stream, bytes)
      const limitBytes = spec.limits.outputHardBytes
      if (run.outputBytes[stream] > limitBytes) stop(run, { kind: 'output_limit', limitBytes })
    })
  }
  child.stdin?.on('error', () => {})
  child.stdin?.end(input.stdin)
  const timer = setTimeout(
    () => stop(run, { kind: 'timed_out', limitMs: spec.limits.timeoutMs }),
    spec.limits.timeoutMs,
  )
  child.on('close', (exitCode, signal) => {
    clearTimeout(timer)
    home?.release()
    run.outputLog.finish(toResult(run, exitCode, signal, performance.now() - startedMs))
  })
  return run
}

/** Ends the process group of a run, by its own id. */
function stop(run: Run, ending: Ending): void {
  if (run.outputLog.ended) return
  run.stoppedAs ??= ending
  if (run.process.pid !== undefined && run.process.exitCode === null && run.process.signalCode === null) {
    process.kill(-run.process.pid, 'SIGKILL')
  }
}

function toResult(
  { spec, stoppedAs, outputBytes }: Run,
  exitCode: number | null,
  signal: string | null,
  runMs: number,
) {
  const own: Ending =
    signal === null ? { kind: 'exited', code: exitCode ?? 0 } : { kind: 'signaled', signal: signal.replace('SIG', '') }
  const result: RunResult = {
    ending: stoppedAs ?? own,
    durationMs: runMs,
    cpuTimeMs: 0,
    memoryPeakBytes: 0,
    oomKills: 0,
    outputBytes,
    limits: spec.limits,
    timings: { ...noTimings, runMs },
  }
  return result
}
