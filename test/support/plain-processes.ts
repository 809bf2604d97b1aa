import { type ChildProcess, spawn } from 'node:child_process'
import { constants } from 'node:os'
import { env as ownEnv } from 'node:process'
import type { Duplex, Readable } from 'node:stream'
import { AsyncQueue } from '../../src/base/async-queue.ts'
import type { ProcessEnding, ProcessEvent, ProcessSpec, ProcessStatus } from '../../src/base/sandbox.ts'
import type { SandboxProcesses } from '../../src/runner/protocol/sandboxes.ts'

type Unnumbered<Event> = Event extends ProcessEvent ? Omit<Event, 'seq'> : never

interface Plain {
  child: ChildProcess
  status: ProcessStatus
  events: ProcessEvent[]
  readers: Set<AsyncQueue<ProcessEvent>>
}

const signalName = (name: NodeJS.Signals | null): string => (name ?? 'SIGKILL').slice('SIG'.length)

/** Processes of this machine in place of those of a sandbox, for tests of what uses them. Each leads a process group. */
export class PlainProcesses implements SandboxProcesses {
  readonly #processes = new Map<number, Plain>()
  #started = 0
  readonly #options: { cwd: string; env?: Readonly<Record<string, string>> }

  constructor(options: { cwd: string; env?: Readonly<Record<string, string>> }) {
    this.#options = options
  }

  async start(_sandboxId: string, spec: ProcessSpec): Promise<ProcessStatus> {
    const [program = '', ...args] = spec.argv
    const child = spawn(program, args, {
      cwd: spec.cwd ?? this.#options.cwd,
      env: { PATH: ownEnv.PATH, LANG: 'C.UTF-8', ...this.#options.env, ...spec.env },
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
      detached: true,
    })
    const status: ProcessStatus = { processId: ++this.#started, argv: spec.argv, startedAt: 0 }
    const plain: Plain = { child, status, events: [], readers: new Set() }
    this.#processes.set(status.processId, plain)
    const started = Promise.withResolvers<void>()
    child.once('spawn', () => started.resolve())
    child.once('error', (error) => {
      this.#end(plain, { kind: 'not_started', reason: error.message })
      started.resolve()
    })
    for (const [index, stream] of (['stdout', 'stderr', 'channel'] as const).entries()) {
      const readable = child.stdio[index + 1] as Readable
      readable.on('data', (bytes: Buffer) => this.#add(plain, { kind: 'output', stream, bytes }))
      readable.on('error', () => undefined)
    }
    child.once('exit', (code, signal) => {
      const ending: ProcessEnding =
        code === null ? { kind: 'signaled', signal: signalName(signal) } : { kind: 'exited', code }
      // What the process left in its pipes is read first; another process can hold them open.
      setImmediate(() => setImmediate(() => this.#end(plain, ending)))
    })
    await started.promise
    return { ...status }
  }

  async startFollowed(sandboxId: string, spec: ProcessSpec) {
    const status = await this.start(sandboxId, spec)
    return { status, events: this.attach(sandboxId, status.processId, 0) }
  }

  attach(_sandboxId: string, processId: number, afterSeq: number) {
    const { events, readers } = this.#of(processId)
    const reader = new AsyncQueue<ProcessEvent>({ capacity: Number.POSITIVE_INFINITY })
    readers.add(reader)
    for (const event of events) if (event.seq > afterSeq || event.kind === 'ended') reader.push(event)
    if (events.at(-1)?.kind === 'ended') reader.close()
    return reader
  }

  async write(_sandboxId: string, processId: number, _to: 'stdin' | 'channel', bytes: Uint8Array): Promise<void> {
    const channel = this.#of(processId).child.stdio[3] as Duplex
    await new Promise<void>((resolve, reject) => {
      channel.write(bytes, (error) => (error ? reject(error) : resolve()))
    })
  }

  async close(_sandboxId: string, processId: number): Promise<void> {
    ;(this.#of(processId).child.stdio[3] as Duplex).end()
  }

  async signal(_sandboxId: string, processId: number, signal: number, target: 'group' | 'one'): Promise<void> {
    const { child, status } = this.#of(processId)
    if (child.pid === undefined || status.ending) return
    process.kill(target === 'group' ? -child.pid : child.pid, signal)
  }

  async resize(): Promise<void> {}

  async list(): Promise<ProcessStatus[]> {
    return [...this.#processes.values()].map(({ status }) => ({ ...status }))
  }

  async forget(_sandboxId: string, processId: number): Promise<void> {
    this.#processes.delete(processId)
  }

  pidOf(processId: number): number {
    return this.#of(processId).child.pid as number
  }

  /** Ends every process with its group. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const { child, status } of this.#processes.values()) {
      if (status.ending || child.pid === undefined) continue
      const exited = new Promise((resolve) => child.once('exit', resolve))
      process.kill(-child.pid, constants.signals.SIGKILL)
      await exited
    }
  }

  #of(processId: number): Plain {
    const plain = this.#processes.get(processId)
    if (!plain) throw new Error(`no process ${processId}`)
    return plain
  }

  #add(plain: Plain, event: Unnumbered<ProcessEvent>): void {
    const numbered = { ...event, seq: plain.events.length + 1 } as ProcessEvent
    plain.events.push(numbered)
    for (const reader of plain.readers) reader.push(numbered)
  }

  #end(plain: Plain, ending: ProcessEnding): void {
    if (plain.status.ending) return
    plain.status.ending = ending
    this.#add(plain, { kind: 'ended', ending })
    for (const reader of plain.readers) reader.close()
  }
}
