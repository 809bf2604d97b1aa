import { constants } from 'node:os'
import type { AsyncQueue } from '../../../base/async-queue.ts'
import { monotonicMs } from '../../../base/clock.ts'
import { Refusal } from '../../../base/errors.ts'
import { InTurn } from '../../../base/in-turn.ts'
import type { RewoundFiles, SandboxProcesses, SandboxStates } from '../../../runner/protocol/sandboxes.ts'
import { parseRewound } from './answers.ts'
import type { Call, CallEnded, CallEvent, Context, KernelLanguage, Rewound } from './calls.ts'
import { causeOf, endingOf, reasonOf, type Stopped } from './endings.ts'
import type { FrameMemory } from './frame-memory.ts'
import { encodeFrame } from './frames.ts'
import { KeptFiles } from './kept-files.ts'
import { Kernel, newNonce } from './kernel.ts'
import { programs } from './programs.ts'

/** What contexts of sandboxes need from outside, with the times that tests shorten. */
export interface KernelDeps {
  processes: SandboxProcesses
  /** Absent where disks have none. */
  states?: SandboxStates
  /** Shared by the kernels of all sandboxes. */
  memory: FrameMemory
  /** The directory guest/kernels as the sandbox sees it. */
  dir: string
  /** Number of calls that a Python context can be rewound by, unless it has its own. */
  rewind: number
  /** Time that code has to end after an interrupt, before its kernel is killed. */
  graceMs: number
  /** Time that an interpreter has to start. */
  startMs: number
}

/** A context to make. */
export interface NewContext {
  id: string
  language: KernelLanguage
  cwd?: string
  /** Number of calls that can be rewound; absent: the usual one. */
  rewind?: number
  /** Whether files can be rewound as well. */
  files?: boolean
}

/** Calls that may wait for earlier ones of their context. */
const waitingMax = 16

/** Time that a kernel has to answer a front that takes it over, before the call of the earlier front is interrupted. */
const takeOverMs = 1_000

/** An interpreter of a sandbox across its processes: it starts the kernel when it is needed, and again after it ended. */
export class KernelContext {
  readonly id: string
  readonly language: KernelLanguage
  readonly #deps: KernelDeps
  readonly #sandboxId: string
  readonly #cwd: string | undefined
  /** Number of calls that can be rewound. */
  readonly #rewind: number
  readonly #files: KeptFiles | undefined
  readonly #turns = new InTurn()
  #waiting = 0
  #kernel: Kernel | undefined
  /** Interrupts the call that runs. */
  #stopCall: ((why: 'interrupted') => void) | undefined
  /** Why the state was lost after the last call. */
  #lost: string | undefined
  #count = 0

  constructor(deps: KernelDeps, sandboxId: string, name: NewContext) {
    this.#deps = deps
    this.#sandboxId = sandboxId
    this.id = name.id
    this.language = name.language
    this.#cwd = name.cwd
    this.#rewind = name.language === 'python' ? (name.rewind ?? deps.rewind) : 0
    if (name.files && deps.states && this.#rewind > 0)
      this.#files = new KeptFiles(deps.states, sandboxId, name.id, this.#rewind)
  }

  describe(): Context {
    const isRunning = this.#kernel !== undefined && !this.#kernel.hasEnded
    return {
      id: this.id,
      language: this.language,
      ...(this.#cwd !== undefined && { cwd: this.#cwd }),
      state: this.#stopCall ? 'busy' : isRunning ? 'idle' : 'not_started',
      rewindable: isRunning ? Math.min(this.#count, this.#rewind) : 0,
      keepsFiles: this.#files !== undefined,
    }
  }

  /** Takes over the kernel that an earlier front has started. */
  adopt(processId: number): void {
    void this.#turns.run('', () => this.#takeOver(processId))
  }

  /** The state was lost before this front knew the context. */
  noteLost(reason: string): void {
    this.#lost = reason
  }

  /** The kernel has ended with its sandbox. */
  lose(reason: string): void {
    if (!this.#kernel && this.#lost === undefined) return
    this.#kernel = undefined
    this.#lost = reason
  }

  /** Starts the kernel if it does not run. @throws Refusal interpreter_missing. */
  start(): Promise<void> {
    return this.#inTurn(async () => {
      await this.#runningKernel()
    })
  }

  /** Runs a call after the earlier ones. @param events receives what it yields. */
  run(call: Call, events: AsyncQueue<CallEvent>, signal: AbortSignal): Promise<void> {
    return this.#inTurn(async () => {
      if (!signal.aborted) await this.#call(call, events, signal)
    })
  }

  /** @throws Refusal context_busy. What waits does so after its client has left, too. */
  async #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#waiting >= waitingMax) throw new Refusal('context_busy', { context: this.id, limit: waitingMax })
    this.#waiting += 1
    try {
      return await this.#turns.run('', work)
    } finally {
      this.#waiting -= 1
    }
  }

  interrupt(): boolean {
    this.#stopCall?.('interrupted')
    return this.#stopCall !== undefined
  }

  /** Ends the kernel: the next call starts a new one, whose state is empty as expected. */
  async end(): Promise<void> {
    const kernel = this.#kernel
    this.#kernel = undefined
    this.#lost = undefined
    await this.#files?.forget()
    if (!kernel || kernel.hasEnded) return
    await kernel.signal(9)
    await kernel.ended
    await this.#forget(kernel)
    this.#lost = undefined
  }

  /**
   * Puts the kernel back into the state before its last calls.
   * @param withFiles whether the files of the sandbox go back as well.
   * @throws Refusal rewind_unavailable.
   */
  rewind(calls: number, withFiles: boolean): Promise<Rewound> {
    const unavailable = (reason: string) => new Refusal('rewind_unavailable', { context: this.id, reason })
    if (this.language !== 'python') throw unavailable('only Python contexts can be rewound')
    if (this.#rewind === 0) throw unavailable('it keeps no earlier states')
    const files = this.#files
    if (withFiles && !files) throw unavailable('it keeps no files, since it was created without rewind_files')
    return this.#inTurn(async () => {
      const kernel = this.#kernel
      if (!kernel || kernel.hasEnded) throw unavailable('it has not run code yet')
      if (withFiles) await files?.check(calls)
      const nonce = newNonce()
      const frames = encodeFrame('rewind', nonce, Buffer.from(String(calls)))
      const timer = setTimeout(() => void kernel.signal(9).catch(() => undefined), this.#deps.startMs)
      const outcome = await kernel.exchange(nonce, 'rewound', frames, undefined)
      clearTimeout(timer)
      if (outcome.kind === 'process_ended') throw unavailable(`its kernel ${reasonOf(outcome.ending)}`)
      const rewound = parseRewound(outcome.frame.payload)
      if ('error' in rewound) throw unavailable(rewound.error)
      this.#count = Math.max(this.#count - calls, 0)
      if (withFiles && files) return rewindFiles(files, calls, rewound.lost)
      await files?.keep(calls)
      return { calls, notRewound: rewound.lost }
    })
  }

  async #call(call: Call, events: AsyncQueue<CallEvent>, signal: AbortSignal): Promise<void> {
    const kernel = await this.#runningKernel()
    const startedMs = monotonicMs()
    const lostBefore = this.#lost
    this.#lost = undefined
    const nonce = newNonce()
    const stop = this.#stopper(kernel, nonce)
    const onAbort = () => stop.now('interrupted')
    const timer = setTimeout(() => stop.now('timed_out'), call.timeoutMs)
    signal.addEventListener('abort', onAbort)
    this.#stopCall = stop.now
    this.#count += 1
    const count = this.#count
    try {
      const frames = programs[this.language].encode(call, nonce)
      const outcome = await kernel.exchange(nonce, 'ended', frames, events)
      stop.end()
      const { ending, state, traceback } = endingOf(outcome, stop.why(), call.timeoutMs)
      if (traceback) await events.send({ kind: 'output', stream: 'stderr', bytes: Buffer.from(traceback) })
      if (state === 'restored') this.#count -= 1
      if (outcome.kind === 'process_ended')
        this.#lost = stop.why() ? 'the interpreter did not stop when it was interrupted' : causeOf(outcome.ending)
      const ended: CallEnded = {
        kind: 'ended',
        ending,
        state,
        ...(lostBefore !== undefined && { lostBefore }),
        count,
        durationMs: monotonicMs() - startedMs,
      }
      // Before its answer, since what the caller does next belongs to later states.
      if (state === 'kept') await this.#files?.keep()
      await events.send(ended)
    } finally {
      stop.end()
      clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
      this.#stopCall = undefined
    }
  }

  /** Interrupts a call once, and kills its kernel if the call does not end. */
  #stopper(kernel: Kernel, nonce: string) {
    let why: Stopped | undefined
    let hasEnded = false
    let timer: NodeJS.Timeout | undefined
    const killAll = () => void kernel.signal(9).catch(() => undefined)
    const kill = () => {
      if (this.#rewind === 0) return killAll()
      // A frozen copy takes the place of the kernel.
      void kernel.signal(constants.signals.SIGUSR1, 'one').catch(() => undefined)
      timer = setTimeout(killAll, this.#deps.graceMs)
    }
    const now = (reason: Stopped) => {
      if (why || hasEnded) return
      why = reason
      timer = setTimeout(kill, this.#deps.graceMs)
      const { isInterruptedBySignal } = programs[this.language]
      kernel.interrupt(nonce, isInterruptedBySignal).catch(kill)
    }
    const end = () => {
      hasEnded = true
      clearTimeout(timer)
    }
    return { now, end, why: () => why }
  }

  async #runningKernel(): Promise<Kernel> {
    if (this.#kernel && !this.#kernel.hasEnded) return this.#kernel
    const { processes, dir } = this.#deps
    const status = await processes.start(this.#sandboxId, {
      argv: programs[this.language].argv(dir, { id: this.id, rewind: this.#rewind, files: this.#files !== undefined }),
      channel: true,
      ...(this.#cwd !== undefined && { cwd: this.#cwd }),
    })
    const missing = (reason: string) => new Refusal('interpreter_missing', { language: this.language, reason })
    if (status.ending?.kind === 'not_started') throw missing(status.ending.reason)
    const kernel = new Kernel(processes, this.#deps.memory, this.#sandboxId, status.processId)
    const timer = setTimeout(() => void kernel.signal(9).catch(() => undefined), this.#deps.startMs)
    await kernel.ready
    clearTimeout(timer)
    if (kernel.hasEnded) {
      const ending = await kernel.ended
      await this.#forget(kernel)
      const { lastMessage } = kernel
      throw missing(`the interpreter ${reasonOf(ending)}${lastMessage ? `: ${lastMessage}` : ''}`)
    }
    this.#use(kernel)
    await this.#files?.begin()
    return kernel
  }

  #use(kernel: Kernel): void {
    this.#kernel = kernel
    this.#count = 0
    void kernel.ended.then((ending) => {
      if (this.#kernel !== kernel) return
      this.#kernel = undefined
      // A call that it ended with says so itself.
      this.#lost ??= causeOf(ending)
      return this.#forget(kernel)
    })
  }

  async #takeOver(processId: number): Promise<void> {
    const kernel = new Kernel(this.#deps.processes, this.#deps.memory, this.#sandboxId, processId)
    this.#use(kernel)
    const interrupt = () => void kernel.interrupt('0', true).catch(() => undefined)
    const timers = [
      setTimeout(interrupt, takeOverMs),
      setTimeout(() => void kernel.signal(9), takeOverMs + this.#deps.graceMs),
    ]
    await kernel.takeOver()
    for (const timer of timers) clearTimeout(timer)
    await this.#files?.begin()
  }

  /** Releases the output of a process that has ended. */
  async #forget(kernel: Kernel): Promise<void> {
    await this.#deps.processes.forget(this.#sandboxId, kernel.processId).catch(() => undefined)
  }
}

/** The variables are rewound already: what fails now is reported. */
async function rewindFiles(files: KeptFiles, calls: number, lost: readonly string[]): Promise<Rewound> {
  let rewound: RewoundFiles
  try {
    rewound = await files.rewind(calls)
  } catch (error) {
    await files.begin()
    if (!(error instanceof Refusal)) throw error
    return { calls, notRewound: [...lost, `files: ${error.message}`] }
  }
  const { restored, removed, failed, problems } = rewound
  const missed = failed > 0 ? [`files: ${failed} (${problems.join(', ')})`] : []
  return { calls, notRewound: [...lost, ...missed], files: { restored, removed } }
}
