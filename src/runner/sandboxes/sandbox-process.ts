import { wallMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { ProcessEnding, ProcessSpec, ProcessStatus, ProcessStream, TerminalSize } from '../../base/sandbox.ts'
import { nameOf } from '../../engine/jails/ending.ts'
import type { AgentExit, Spawn } from '../../engine/sandboxes/agent-channel.ts'
import { type AgentProcess, type InputStream, inputCost } from '../../engine/sandboxes/agent-process.ts'
import type { SandboxJail } from '../../engine/sandboxes/sandbox-jail.ts'
import type { MemoryKills } from './memory-kills.ts'
import { ProcessLog } from './process-log.ts'

/** Output that a process may write ahead of its slowest reader, in bytes. */
const windowBytes = 256 * 1024
/** Input that waits for a process which does not read it. */
const waitingInputBytes = 1024 * 1024
export const keepBytes = { least: 16 * 1024, usual: 1024 * 1024, most: 8 * 1024 * 1024 } as const

const SIGKILL = 9

/** A position in the output of a process. */
export interface ProcessCursor {
  readonly seq: number
}

const SIGTERM = 15

/** Asks processes to end. Resolves when all have ended, after the grace period, or when the sandbox has. */
export async function endGently(
  processes: readonly SandboxProcess[],
  graceMs: number,
  sandboxEnded: Promise<unknown> | undefined,
): Promise<void> {
  const running = processes.filter((process) => !process.hasEnded)
  if (running.length === 0 || graceMs <= 0) return
  const ended = running.map((process) => {
    process.signal(SIGTERM, 'group')
    return process.ended
  })
  let timer: NodeJS.Timeout | undefined
  const grace = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, graceMs)
  })
  await Promise.race([Promise.all(ended), grace, sandboxEnded])
  clearTimeout(timer)
}

/** A process of a sandbox with its output, until it is forgotten. */
export class SandboxProcess {
  readonly log: ProcessLog
  readonly started: Promise<void>
  /** Resolves when it has ended, or the sandbox has. */
  readonly ended: Promise<void>
  readonly #hasEnded = Promise.withResolvers<void>()
  readonly #spec: ProcessSpec
  readonly #memoryKills: MemoryKills
  /** Of these, what was before its start. */
  readonly #killsBefore: number
  readonly #windowBytes: number
  readonly #process: AgentProcess
  readonly #startedMs = wallMs()
  readonly #executed = Promise.withResolvers<void>()
  readonly #cursors = new Set<ProcessCursor>()
  readonly #ungranted = { output: 0, channel: 0 }
  #pid: number | undefined
  #timer: NodeJS.Timeout | undefined
  #timedOut = false
  /** By request. */
  #wasKilled = false

  /** @throws RangeError when the request is too large, or a word holds a NUL. */
  constructor(jail: SandboxJail, spec: ProcessSpec, spawn: Spawn, memoryKills: MemoryKills) {
    this.#spec = spec
    this.#memoryKills = memoryKills
    this.#killsBefore = memoryKills.mark()
    this.started = this.#executed.promise
    this.ended = this.#hasEnded.promise
    const kept = Math.max(spec.keepBytes ?? keepBytes.usual, keepBytes.least)
    this.log = new ProcessLog(kept)
    this.#windowBytes = Math.min(windowBytes, kept)
    this.#process = jail.spawn(spawn, {
      started: (pid) => this.#begin(pid),
      notStarted: (reason) => this.end({ kind: 'not_started', reason }),
      output: (stream, bytes) => this.#take(stream, bytes),
      ended: (exit) => this.end(this.#endingOf(exit)),
    })
    this.#process.grant('output', this.#windowBytes)
    if (spec.channel) this.#process.grant('channel', this.#windowBytes)
  }

  get processId(): number {
    return this.#process.number
  }

  get hasEnded(): boolean {
    return this.log.ending !== undefined
  }

  get status(): ProcessStatus {
    const ending = this.log.ending
    return {
      processId: this.processId,
      ...(this.#pid !== undefined && { pid: this.#pid }),
      argv: this.#spec.argv,
      startedAt: this.#startedMs,
      ...(ending && { ending }),
    }
  }

  /** @throws Refusal input_full while too much waits for the process. */
  async write(to: InputStream, bytes: Uint8Array): Promise<void> {
    const waiting = this.#process.waitingInput(to)
    if (waiting > 0 && waiting + inputCost(bytes) > waitingInputBytes)
      throw new Refusal('input_full', { process: this.processId })
    return this.#process.write(to, bytes)
  }

  close(what: InputStream): void {
    this.#process.close(what)
  }

  signal(signal: number, target: 'group' | 'one'): void {
    if (signal === SIGKILL) this.#wasKilled = true
    this.#process.signal(signal, target)
  }

  resize(size: TerminalSize): void {
    this.#process.resize(size)
  }

  /** Lets a reader hold the process: it waits for its readers. @returns a function that ends this. */
  follow(cursor: ProcessCursor): () => void {
    this.#cursors.add(cursor)
    return () => {
      this.#cursors.delete(cursor)
      this.#grant()
    }
  }

  /** A reader has moved on. */
  moved(cursor: ProcessCursor): void {
    this.log.read(cursor.seq)
    this.#grant()
  }

  end(ending: ProcessEnding): void {
    clearTimeout(this.#timer)
    this.log.finish(ending)
    this.#executed.resolve()
    this.#hasEnded.resolve()
  }

  #begin(pid: number): void {
    this.#pid = pid
    this.#executed.resolve()
    const { timeoutMs } = this.#spec
    if (timeoutMs === undefined) return
    this.#timer = setTimeout(() => {
      this.#timedOut = true
      this.signal(SIGKILL, 'group')
    }, timeoutMs)
  }

  #take(stream: ProcessStream, bytes: Uint8Array): void {
    this.#ungranted[stream === 'channel' ? 'channel' : 'output'] += bytes.length
    this.log.append(stream, bytes)
    this.#grant()
  }

  /** Gives credit for what has room: standard output waits for the slowest reader, the channel for any. */
  #grant(): void {
    if (this.hasEnded) return
    const unread = Math.max(0, ...[...this.#cursors].map(({ seq }) => this.log.end - seq))
    this.#grantWithin('output', unread)
    if (this.#spec.channel) this.#grantWithin('channel', this.log.unreadChannelBytes)
  }

  /** In larger units, so that small output does not cost a frame each. */
  #grantWithin(of: 'output' | 'channel', unreadBytes: number): void {
    const bytes = this.#ungranted[of] - unreadBytes
    if (bytes < this.#windowBytes / 4) return
    this.#ungranted[of] -= bytes
    this.#process.grant(of, bytes)
  }

  #endingOf(exit: AgentExit): ProcessEnding {
    if (exit.how === 'exited') {
      const oomKills = this.#memoryKills.since(this.#killsBefore)
      return { kind: 'exited', code: exit.code, ...(oomKills > 0 && { oomKills }) }
    }
    if (exit.signal === SIGKILL) {
      if (this.#timedOut) return { kind: 'timed_out', limitMs: this.#spec.timeoutMs ?? 0 }
      if (!this.#wasKilled && this.#memoryKills.attribute(this.#killsBefore))
        return { kind: 'out_of_memory', limitBytes: this.#memoryKills.limitBytes }
    }
    return { kind: 'signaled', signal: nameOf(exit.signal) }
  }
}
