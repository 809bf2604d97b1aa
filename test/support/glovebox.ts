import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { allProcesses, mountsBelow, processesOf, removeTraces, type Scope } from './machine.ts'

/** The command of the source tree. */
export const program = fileURLToPath(new URL('../../bin/glovebox', import.meta.url))

/** The same command from few files, for stories that start it many times (test/support/built-program.ts). */
export const builtProgram = fileURLToPath(new URL('../../build/program/glovebox', import.meta.url))

/** Generous, since the machine may be busy with other tests; these limits only end what hangs. */
const startWithinMs = 90_000
const endWithinMs = 60_000

let places = 0

export interface LogLine {
  level?: string
  process?: string
  msg?: string
  url?: string
  [name: string]: unknown
}

export interface Exit {
  code: number | null
  signal: NodeJS.Signals | null
}

/** A directory for one instance, with its home and its state; it outlives the servers that are started in it. */
export class Place implements Scope {
  readonly directory: string
  readonly frontUid: number
  readonly program: string
  readonly #servers: Glovebox[] = []

  /** @param path of the command to start; by default the one of this source tree. */
  constructor(path: string = program) {
    this.program = path
    this.directory = mkdtempSync(join(tmpdir(), 'glovebox-story-'))
    // The slots of a server access it as users of their own.
    chmodSync(this.directory, 0o711)
    // A separate user, so that it can be distinguished from others: no two live processes share a pid.
    this.frontUid = 100_000 + process.pid * 32 + (places++ % 32)
  }

  /** Starts a server here and waits until it can take runs. @throws Error when it refuses to start or dies. */
  async start(...words: string[]): Promise<Glovebox> {
    const server = this.launch('--port', '0', ...words)
    await server.ready()
    return server
  }

  /** The server that was started last, also one that did not become ready. */
  get lastServer(): Glovebox | undefined {
    return this.#servers.at(-1)
  }

  /** Starts a server here without waiting. */
  launch(...words: string[]): Glovebox {
    const server = new Glovebox(this, words)
    this.#servers.push(server)
    return server
  }

  /** The rows of all runs, oldest first; readable while a server has the database open. */
  runs(): Record<string, unknown>[] {
    const database = new DatabaseSync(join(this.directory, 'home', 'front', 'glovebox.db'), { readOnly: true })
    try {
      return database.prepare('select * from runs order by created_at').all()
    } finally {
      database.close()
    }
  }

  /** Ends every remaining process of this instance, with SIGKILL if necessary, and removes the directory. For `afterAll`. */
  async remove(): Promise<void> {
    for (const server of this.#servers) await server.end()
    for (const { pid } of processesOf(this)) killIfThere(pid)
    await until(() => processesOf(this).length === 0, 'the last process is gone')
    removeTraces(this)
    // The program itself is mounted below it while a server lives: nothing may be deleted through a mount.
    if (mountsBelow(this.directory).length > 0) throw new Error(`still mounted: ${mountsBelow(this.directory)}`)
    rmSync(this.directory, { recursive: true })
  }
}

/** One process tree of `glovebox serve`, the real binary. */
export class Glovebox {
  readonly place: Place
  readonly log: LogLine[] = []
  readonly exited: Promise<Exit>
  readonly #child: ChildProcess
  #stdout = ''
  #stderrRest = ''

  constructor(place: Place, words: readonly string[]) {
    this.place = place
    const own = [
      ...['serve', '--dev', '--log-format', 'json', '--slots-ready', '1', '--drain-s', '1'],
      ...['--home', join(place.directory, 'home'), '--state-dir', join(place.directory, 'state')],
      ...['--front-uid', `${place.frontUid}`, '--front-gid', `${place.frontUid}`],
    ]
    // Ends with the test process that started it.
    this.#child = spawn('setpriv', ['--pdeathsig', 'TERM', '--', place.program, ...own, ...words], {
      stdio: ['ignore', 'pipe', 'pipe'],
      // Tests read the fields of results; the form that models read has tests of its own.
      env: { PATH: process.env.PATH ?? '', GLOVEBOX_STRUCTURED_RESULTS: 'true', GLOVEBOX_MCP_OUTPUT: '10000000' },
    })
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => (this.#stdout += text))
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => this.#read(text))
    this.exited = once(this.#child, 'exit').then(([code, signal]) => ({ code, signal }) as Exit)
  }

  /** The standard output. */
  get stdout(): string {
    return this.#stdout
  }

  /** Everything on standard error that is not a log entry, such as the reason for a failed start. */
  get complaint(): string {
    return [...this.log.map((line) => line.unparsed ?? '').filter(Boolean), this.#stderrRest].join('\n')
  }

  /** The warnings and errors in the log, including lines that are not log entries. */
  get warnings(): LogLine[] {
    return this.log.filter(({ level }) => level === undefined || ['warn', 'error', 'fatal'].includes(level))
  }

  /** The address at which the front listens, from its latest log entry. */
  get url(): string {
    const url = this.log.findLast((line) => line.msg === 'API server listening')?.url
    if (url === undefined) throw new Error(`it does not serve: ${JSON.stringify(this.log)} ${this.complaint}`)
    return url
  }

  get port(): number {
    return Number(new URL(this.url).port)
  }

  get supervisorPid(): number {
    return this.#child.pid ?? 0
  }

  get runnerPid(): number {
    return this.#childPid('runner')
  }

  get frontPid(): number {
    return this.#childPid('front')
  }

  /** Waits until a run could start. @throws Error with its output when it ends before. */
  async ready(): Promise<void> {
    const isReady = async () => {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) {
        throw new Error(`it ended: ${this.#child.exitCode} ${JSON.stringify(this.log)} ${this.complaint}`)
      }
      return (await this.readiness()) === 200
    }
    await until(isReady, 'the server is ready', startWithinMs)
  }

  /** The status of `/readyz`; `undefined` while nothing listens. */
  async readiness(): Promise<number | undefined> {
    if (!this.log.some((line) => line.msg === 'API server listening')) return undefined
    try {
      const response = await fetch(`${this.url}/readyz`)
      await response.arrayBuffer()
      return response.status
    } catch {
      return undefined
    }
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name)
  }

  /** Sends SIGTERM and waits for the end. @returns how it ended. */
  async stop(): Promise<Exit> {
    this.signal('SIGTERM')
    return within(this.exited, endWithinMs, 'the server ends')
  }

  /** Ends it, if it is running. */
  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    await this.stop().catch(() => this.signal('SIGKILL'))
    await this.exited
  }

  #childPid(command: 'runner' | 'front'): number {
    const isIt = (words: string[]) => words.at(-1) === command && /\/main\.[jt]s$/.test(words.at(-2) ?? '')
    const found = allProcesses().find(
      ({ parent, state, words }) => parent === this.supervisorPid && state !== 'Z' && isIt(words),
    )
    if (!found) throw new Error(`there is no ${command}`)
    return found.pid
  }

  #read(text: string): void {
    const lines = (this.#stderrRest + text).split('\n')
    this.#stderrRest = lines.pop() ?? ''
    for (const line of lines) this.log.push(line.startsWith('{') ? (JSON.parse(line) as LogLine) : { unparsed: line })
  }
}

/** Polls a condition until it holds. @throws Error that names it when it does not hold in time. */
export async function until(
  holds: () => boolean | Promise<boolean>,
  what: string,
  limitMs: number = startWithinMs,
): Promise<void> {
  const endMs = performance.now() + limitMs
  while (!(await holds())) {
    if (performance.now() > endMs) throw new Error(`not within ${limitMs} ms: ${what}`)
    await sleep(20)
  }
}

/** @throws Error that names what did not happen in time. */
export async function within<T>(promise: Promise<T>, limitMs: number, what: string): Promise<T> {
  const ended = new AbortController()
  const late = sleep(limitMs, undefined, { signal: ended.signal }).then(() => {
    throw new Error(`not within ${limitMs} ms: ${what}`)
  })
  late.catch(() => undefined)
  try {
    return await Promise.race([promise, late])
  } finally {
    ended.abort()
  }
}

/** Returns an unused port on loopback. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  return typeof address === 'object' && address ? address.port : 0
}

/** Sends SIGKILL to one process, if it exists. */
export const killIfThere = (pid: number): void => signalIfThere(pid, 'SIGKILL')

/** Sends a signal to one process, if it exists. */
export function signalIfThere(pid: number, signal: NodeJS.Signals): void {
  if (pid <= 1) throw new Error('there is no such process')
  try {
    process.kill(pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
