/**
 * Real slots of a real engine, for tests that attack them. The engine runs in a separate process (it
 * needs a private mount namespace), one for each OCI runtime.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { CancelCause, Limits, Stream } from '../../src/base/run.ts'
import { fixedEnv, type LanguageFound } from '../../src/engine/jails/languages.ts'
import type { RuntimeName } from '../../src/engine/settings.ts'
import type { SlotRunResult } from '../../src/engine/slots/slot.ts'
import { type Known, know } from './processes.ts'

const mib = 1024 * 1024

/** Small enough that a successful attack costs the host little. */
export const benchLimits: Limits = {
  memoryBytes: 256 * mib,
  cpus: 1,
  pids: 48,
  openFiles: 256,
  fileBytes: 64 * mib,
  tmpBytes: 48 * mib,
  homeBytes: 32 * mib,
  outputSoftBytes: 256 * 1024,
  outputHardBytes: 4 * mib,
  timeoutMs: 20_000,
}

/** One program for a jail; the defaults are those of the engine. */
export interface Program {
  argv: readonly string[]
  codeFile?: string
  env?: Readonly<Record<string, string>>
  code?: string | Uint8Array
  stdin?: Uint8Array
}

type Whole = Required<Pick<Program, 'argv' | 'env'>> & {
  codeFile?: string
  code: Uint8Array
  stdin: Uint8Array | undefined
}

/** Requests to the child process; each with an id. */
export type Request = { id: number } & (
  | { verb: 'open'; runtime: RuntimeName }
  | { verb: 'slot'; limits: Limits; guest?: string }
  | { verb: 'start'; slot: string; run: string; program: Whole; limits: Limits }
  | { verb: 'stop'; run: string; cause: CancelCause }
  | { verb: 'state'; slot: string }
  | { verb: 'destroy'; slot: string }
  | { verb: 'memory' }
  | { verb: 'close' }
)

/** The result of each request. */
export interface Asked {
  open: {
    pid: number
    stateDir: string
    instanceId: string
    cgroups: string
    runtimeVersion: string
    languages: readonly LanguageFound[]
  }
  slot: { id: string; pid: number }
  start: undefined
  stop: undefined
  state: { healthy: boolean; unhealthyReason: string | undefined; runs: number }
  destroy: undefined
  memory: number
  close: undefined
}

export type Answer =
  | { id: number; kind: 'done'; value: Asked[Request['verb']] }
  | { id: number; kind: 'error'; message: string }
  | { run: string; kind: 'running' }
  | { run: string; kind: 'output'; stream: Stream; bytes: Uint8Array }
  | { run: string; kind: 'ended'; result: SlotRunResult }

export interface Outcome extends SlotRunResult {
  stdout: string
  stderr: string
}

/** Why no slot can be created on this host, or undefined. */
export const benchMissing: string | undefined = process.getuid?.() === 0 ? undefined : 'making slots needs root'

/** The runtimes to attack: those installed on this host that the engine supports. */
export const runtimesHere: readonly RuntimeName[] = (['crun', 'runc'] as const).filter((name) => {
  try {
    execFileSync(name, ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
})

type Unnumbered = Request extends infer One ? (One extends Request ? Omit<One, 'id'> : never) : never

/** An engine in a child process. It ends with the test process, if it is not closed before. */
export class Bench {
  readonly runtime: RuntimeName
  readonly #process: ChildProcess
  readonly #waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>()
  readonly #runs = new Map<string, BenchRun>()
  #asked = 0
  #facts: Asked['open'] | undefined

  private constructor(runtime: RuntimeName) {
    this.runtime = runtime
    const far = [process.execPath, join(import.meta.dirname, 'slot-bench-process.ts')]
    this.#process = spawn('unshare', ['--mount', '--propagation', 'private', ...far], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      serialization: 'advanced',
    })
    this.#process.on('message', (answer: Answer) => this.#take(answer))
    this.#process.on('exit', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error('the bench ended'))
    })
  }

  /** @throws Error with the message of StartRefused when the engine refuses to start. */
  static async open(runtime: RuntimeName): Promise<Bench> {
    const bench = new Bench(runtime)
    try {
      bench.#facts = await bench.ask('open', { verb: 'open', runtime })
      return bench
    } catch (error) {
      await bench.close()
      throw error
    }
  }

  /** What the engine reports about itself; the guest of a slot talks to its process. */
  get facts(): Asked['open'] {
    if (this.#facts === undefined) throw new Error('the bench is not open')
    return this.#facts
  }

  /** A new slot, bound to limits. @param guest a program that replaces the guest. */
  async slot(limits: Partial<Limits> = {}, guest?: string): Promise<BenchSlot> {
    const whole = { ...benchLimits, ...limits }
    const made = await this.ask('slot', { verb: 'slot', limits: whole, ...(guest === undefined ? {} : { guest }) })
    return new BenchSlot(this, made, whole)
  }

  /** Resident memory of the engine process. */
  memory(): Promise<number> {
    return this.ask('memory', { verb: 'memory' })
  }

  /** Ends every slot and the engine. @throws Error when something could not be removed. */
  async close(): Promise<void> {
    const { exitCode, signalCode } = this.#process
    if (exitCode !== null || signalCode !== null) return
    try {
      await this.ask('close', { verb: 'close' })
    } finally {
      const exited = new Promise((resolve) => this.#process.once('exit', resolve))
      this.#process.disconnect()
      await exited
    }
  }

  ask<Verb extends Request['verb']>(_verb: Verb, request: Extract<Unnumbered, { verb: Verb }>): Promise<Asked[Verb]> {
    const id = ++this.#asked
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve: (value) => resolve(value as Asked[Verb]), reject })
      this.#process.send({ ...request, id })
    })
  }

  follow(run: BenchRun): void {
    this.#runs.set(run.id, run)
  }

  #take(answer: Answer): void {
    if ('run' in answer) {
      this.#runs.get(answer.run)?.take(answer)
      if (answer.kind === 'ended') this.#runs.delete(answer.run)
      return
    }
    const waiting = this.#waiting.get(answer.id)
    this.#waiting.delete(answer.id)
    if (answer.kind === 'done') waiting?.resolve(answer.value)
    else waiting?.reject(new Error(answer.message))
  }
}

/** Writes the program from standard input to a file and executes it. */
const becomeInput = 'cat >/tmp/attack && chmod 700 /tmp/attack && exec /tmp/attack "$@" </dev/null'

let started = 0

export class BenchSlot {
  readonly id: string
  /** The pid of the guest on this host. */
  readonly pid: number
  /** The guest. */
  readonly guest: Known
  readonly limits: Limits
  readonly #bench: Bench

  constructor(bench: Bench, { id, pid }: Asked['slot'], limits: Limits) {
    this.#bench = bench
    this.id = id
    this.pid = pid
    this.guest = know(pid)
    this.limits = limits
  }

  /** Starts one program in a new jail. */
  start({ argv, codeFile, env, code, stdin }: Program): BenchRun {
    const run = new BenchRun(this.#bench, `run${++started}`)
    this.#bench.follow(run)
    const program = {
      argv,
      env: { ...fixedEnv, ...env },
      code: Buffer.from(code ?? ''),
      stdin,
      ...(codeFile === undefined ? {} : { codeFile }),
    }
    run.failWith(this.#bench.ask('start', { verb: 'start', slot: this.id, run: run.id, program, limits: this.limits }))
    return run
  }

  run(program: Program): Promise<Outcome> {
    return this.start(program).ended
  }

  python(code: string, ...words: string[]): Promise<Outcome> {
    return this.run(python(code, ...words))
  }

  bash(code: string, ...words: string[]): Promise<Outcome> {
    return this.run(bash(code, ...words))
  }

  /** Runs a compiled program (see `compile`) in the jail. */
  attack(binary: string, ...words: string[]): Promise<Outcome> {
    return this.run(attack(binary, ...words))
  }

  state(): Promise<Asked['state']> {
    return this.#bench.ask('state', { verb: 'state', slot: this.id })
  }

  destroy(): Promise<undefined> {
    return this.#bench.ask('destroy', { verb: 'destroy', slot: this.id })
  }
}

export const bash = (code: string, ...words: string[]): Program => ({
  argv: ['/bin/bash', '/run/glovebox/main.sh', ...words],
  codeFile: 'main.sh',
  code,
})

export const python = (code: string, ...words: string[]): Program => ({
  argv: ['/usr/bin/python3', '-u', '/run/glovebox/main.py', ...words],
  codeFile: 'main.py',
  code,
})

export const attack = (binary: string, ...words: string[]): Program => ({
  ...bash(becomeInput, ...words),
  stdin: readFileSync(binary),
})

export class BenchRun {
  readonly id: string
  readonly running: Promise<void>
  readonly ended: Promise<Outcome>
  readonly #bench: Bench
  readonly #chunks: Record<Stream, Buffer[]> = { stdout: [], stderr: [] }
  readonly #waiting: (() => void)[] = []
  readonly #settled = Promise.withResolvers<Outcome>()
  readonly #started = Promise.withResolvers<void>()

  constructor(bench: Bench, id: string) {
    this.#bench = bench
    this.id = id
    this.running = this.#started.promise
    this.ended = this.#settled.promise
    this.running.catch(() => {}) // a caller that waits only for the end receives the error there
  }

  failWith(asked: Promise<unknown>): void {
    asked.catch((error) => {
      this.#started.reject(error)
      this.#settled.reject(error)
    })
  }

  /** The output so far. */
  text(stream: Stream): string {
    return Buffer.concat(this.#chunks[stream]).toString('utf8')
  }

  /** Waits until standard output contains this text. @throws Error when the run ends before. */
  async prints(text: string): Promise<string> {
    let over = false
    const end = this.ended.finally(() => {
      over = true
    })
    while (!this.text('stdout').includes(text)) {
      if (over) throw new Error(`it ended without "${text}": ${this.text('stdout')}${this.text('stderr')}`)
      await Promise.race([end, new Promise<void>((resolve) => this.#waiting.push(resolve))])
    }
    return this.text('stdout')
  }

  stop(cause: CancelCause = 'cancelled'): void {
    void this.#bench.ask('stop', { verb: 'stop', run: this.id, cause })
  }

  take(answer: Extract<Answer, { run: string }>): void {
    if (answer.kind === 'running') this.#started.resolve()
    if (answer.kind === 'output') this.#chunks[answer.stream].push(Buffer.from(answer.bytes))
    if (answer.kind === 'ended')
      this.#settled.resolve({ ...answer.result, stdout: this.text('stdout'), stderr: this.text('stderr') })
    for (const wake of this.#waiting.splice(0)) wake()
  }
}
