import { type ChildProcess, spawn } from 'node:child_process'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../config.ts'
import type { Log } from '../observe/log.ts'
import { heartbeatMs, signs } from './child-lifecycle.ts'
import { sendConfig } from './hand-over.ts'
import { exitCodes } from './process-io.ts'
import { Watchdog } from './watchdog.ts'

/**
 * The operator's environment is not passed on. With Node's default of four threads for files, one slow disk would block
 * the file operations of everyone: https://nodejs.org/api/cli.html#uv_threadpool_sizesize
 */
const environment = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  LANG: 'C.UTF-8',
  UV_THREADPOOL_SIZE: '16',
}

/** A process that lived this long counts as stable: its next death restarts the backoff. */
const stableMs = 10_000
const restartDelayMs = (deaths: number): number => Math.min(100 * 2 ** (deaths - 1), 5_000)

/**
 * A process that is restarted until it is stopped, and replaced when it stops responding. It receives the configuration on
 * standard input, which stays open while the supervisor lives, and writes `signs` on descriptor 3.
 */
export class Child {
  readonly #name: string
  readonly #command: readonly string[]
  readonly #config: Config
  readonly #log: Log
  readonly #stopping: AbortController
  #process: ChildProcess | undefined
  #exited: Promise<number | null> = Promise.resolve(null)
  #refusal: number | undefined

  /** @param stopping aborting it ends the restarts; the child aborts it when its first start is refused. */
  constructor(name: string, command: readonly string[], config: Config, log: Log, stopping: AbortController) {
    this.#name = name
    this.#command = command
    this.#config = config
    this.#log = log
    this.#stopping = stopping
  }

  /** The exit code of a refused first start. */
  get refusal(): number | undefined {
    return this.#refusal
  }

  /** Starts it and waits until it is ready. @returns the exit code of a refused start, or 0 when it was stopped. */
  async start(): Promise<number | undefined> {
    if (this.#stopping.signal.aborted) return 0
    const ready = this.#spawn()
    const code = await Promise.race([ready, this.#exited])
    if (code !== undefined) {
      this.#refusal = code === 0 && this.#stopping.signal.aborted ? 0 : (code ?? exitCodes.software)
      this.#stopping.abort()
      return this.#refusal
    }
    void this.#keepAlive()
    return undefined
  }

  /** Stops it, and kills it after `patienceMs` or when `hurry` is aborted. */
  async end(patienceMs: number, hurry?: AbortSignal): Promise<void> {
    const child = this.#process
    if (!child) return
    child.kill('SIGTERM')
    const timer = setTimeout(() => child.kill('SIGKILL'), patienceMs)
    whenAborted(hurry, () => child.kill('SIGKILL'))
    await this.#exited
    clearTimeout(timer)
  }

  async #keepAlive(): Promise<void> {
    for (let deaths = 0; ; ) {
      const startedMs = performance.now()
      const code = await this.#exited
      if (this.#stopping.signal.aborted) return
      deaths = performance.now() - startedMs > stableMs ? 1 : deaths + 1
      const delayMs = restartDelayMs(deaths)
      this.#log.error({ child: this.#name, exit_code: code, delay_ms: delayMs }, 'process died; restarting it')
      await sleep(delayMs)
      if (this.#stopping.signal.aborted) return
      void this.#spawn()
    }
  }

  /** @returns a promise that resolves when it is ready, and never when it dies before. */
  #spawn(): Promise<undefined> {
    const [program, ...args] = this.#command
    const child = spawn(program!, args, {
      // In its own process group, so that a signal from the terminal reaches the supervisor only.
      detached: true,
      stdio: ['pipe', 'inherit', 'inherit', 'pipe'],
      env: environment,
    })
    this.#process = child
    this.#exited = new Promise((resolve) => {
      child.once('error', (error) => {
        this.#log.error({ child: this.#name, err: error }, 'process could not be started')
        resolve(null)
      })
      child.once('exit', (code) => resolve(code))
    }).then((code) => {
      this.#process = undefined
      return code as number | null
    })
    child.stdin!.on('error', () => {
      // It died before it read its configuration; its exit code reports that.
    })
    sendConfig(child.stdin!, this.#config)
    return this.#watch(child)
  }

  /** @returns a promise that resolves when it is ready, and never when it dies before. */
  #watch(child: ChildProcess): Promise<undefined> {
    const about = { child: this.#name, pid: child.pid }
    const watchdog = new Watchdog(this.#config.watchdogMs, heartbeatMs, {
      silent: (beats) => this.#log.warn({ ...about, silent_s: beats }, 'process does not respond'),
      expired: (beats) => {
        this.#log.error({ ...about, silent_s: beats }, 'process does not respond; killing it')
        child.kill('SIGKILL')
      },
    })
    child.once('error', () => watchdog.stop())
    child.once('exit', () => watchdog.stop())
    const channel = child.stdio[3] as Readable
    channel.on('error', () => {
      // It died before it wrote anything.
    })
    return new Promise((resolve) => {
      channel.on('data', (written: Buffer) => {
        watchdog.heard()
        if (!written.includes(signs.ready)) return
        watchdog.ready()
        resolve(undefined)
      })
    })
  }
}

/** Calls a function when a signal is aborted, or now if it is. */
export function whenAborted(signal: AbortSignal | undefined, then: () => void): void {
  if (signal?.aborted) then()
  else signal?.addEventListener('abort', then)
}
