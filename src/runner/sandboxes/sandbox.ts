import { Cleanup } from '../../base/cleanup.ts'
import { monotonicMs, wallMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { JailNetwork, NetworkUse } from '../../base/network.ts'
import type {
  ProcessSpec,
  SandboxCrash,
  SandboxFigures,
  SandboxSpec,
  SandboxState,
  SandboxStatus,
} from '../../base/sandbox.ts'
import { networkEnvOf } from '../../engine/jails/network-env.ts'
import type { Builtin, Spawn } from '../../engine/sandboxes/agent-channel.ts'
import { withCertificates } from '../network-trust.ts'
import { BuiltinRun, withinFrame } from './builtin-run.ts'
import { DiskStates } from './disk-states.ts'
import { IdleMemory } from './idle-memory.ts'
import { MemoryKills } from './memory-kills.ts'
import { figuresOf } from './sandbox-figures.ts'
import type { SandboxHost } from './sandbox-host.ts'
import { connectTo, writeCertificates } from './sandbox-network.ts'
import { openSandboxParts, type SandboxParts } from './sandbox-parts.ts'
import { endGently, SandboxProcess } from './sandbox-process.ts'
import { tooMany } from './too-many.ts'

/** Processes of one sandbox that are kept, running and ended. */
const processesMax = 256
/** Operations on files of one sandbox at once, and watches; each is a process inside. */
const operationsMax = 32
const watchesMax = 16
/** The files of a stopped sandbox stay accessible this long after their last use, in milliseconds. */
const filesIdleMs = 5_000

/** One sandbox from its start until nothing of it lives any more. Its disk outlives it. */
export class Sandbox {
  readonly spec: SandboxSpec
  /** Resolves when it has ended. Never rejects. */
  readonly ended: Promise<void>
  /** Of its disk, for contexts that can be rewound. */
  readonly states: DiskStates
  /** All of its connections; empty until it has ended. */
  uses: readonly NetworkUse[] = []
  readonly #host: SandboxHost
  readonly #changed: (sandbox: Sandbox) => void
  readonly #undo = new Cleanup()
  readonly #processes = new Map<number, SandboxProcess>()
  readonly #ended = Promise.withResolvers<void>()
  readonly #startedAt = wallMs()
  readonly #startedMs = monotonicMs()
  #state: SandboxState = { kind: 'starting' }
  #parts: SandboxParts | undefined
  #isReported: boolean
  #filesUses = 0
  #filesTimer: NodeJS.Timeout | undefined
  readonly #builtins = { operations: 0, watches: 0 }
  readonly #memoryKills: MemoryKills
  #idleMemory: IdleMemory | undefined

  /**
   * @param isReported whether it runs, or only its files are used.
   * @param changed called after each change of its state.
   */
  constructor(spec: SandboxSpec, host: SandboxHost, isReported: boolean, changed: (sandbox: Sandbox) => void) {
    this.spec = spec
    this.#host = host
    this.#isReported = isReported
    this.#memoryKills = new MemoryKills(spec.limits.memoryBytes, () => this.#parts?.slot.oomKills ?? 0)
    this.#changed = changed
    this.ended = this.#ended.promise
    this.states = new DiskStates(spec, host.storage.mounts, {
      parts: () => this.#runningParts(),
      whileFrozen: (work) => this.#whileFrozen(work),
      restore: (argv) => this.builtin('restore', argv, '0', '/'),
    })
  }

  /** False while only its files are used. */
  get isReported(): boolean {
    return this.#isReported
  }

  /** It runs from now on. */
  report(): void {
    if (this.#isReported) return
    this.#isReported = true
    clearTimeout(this.#filesTimer)
    this.#changed(this)
  }

  /** @param stop ends it some seconds after the last use of its files, unless it runs. @returns a function that ends the use. */
  useFiles(stop: () => void): () => void {
    this.#filesUses += 1
    clearTimeout(this.#filesTimer)
    return () => {
      this.#filesUses -= 1
      if (this.#filesUses > 0 || this.#isReported) return
      this.#filesTimer = setTimeout(stop, filesIdleMs)
    }
  }

  get state(): SandboxState {
    return this.#state
  }

  get status(): SandboxStatus {
    const { sandboxId, orgId } = this.spec
    return { sandboxId, orgId, state: this.#state, startedAt: this.#startedAt }
  }

  /** Makes it, with the disk that it had or a new one. @throws Refusal sandbox_failed and others; nothing is left then. */
  async start(): Promise<void> {
    try {
      await this.#open()
      this.#enter({ kind: 'running' })
    } catch (error) {
      await this.#close({ kind: 'stopped' })
      if (error instanceof Refusal) throw error
      const reason = error instanceof Error ? error.message : String(error)
      throw new Refusal('sandbox_failed', { sandbox: this.spec.sandboxId, reason })
    }
  }

  async #open(): Promise<void> {
    const parts = await openSandboxParts(this.spec, this.#host, this.#undo)
    this.#parts = parts
    void parts.jail.ended.then(() => this.#lost())
    await parts.jail.ready
    if (parts.trust) await writeCertificates(parts.jail, parts.trust)
    await this.#makeWorkdir()
    this.#idleMemory = new IdleMemory(parts.slot, this.#host.idleMemoryMs, (error) => this.#host.failed(error))
    this.#undo.add(() => this.#idleMemory?.stop())
  }

  /** The directory belongs to the user of the sandbox, who cannot create it below a directory of root. */
  async #makeWorkdir(): Promise<void> {
    const process = this.#spawn({ argv: [this.spec.workdir] }, 'stat')
    await process.started
    const ending = process.log.ending
    this.#processes.delete(process.processId)
    if (ending?.kind !== 'not_started') return
    throw new Refusal('sandbox_failed', { sandbox: this.spec.sandboxId, reason: ending.reason })
  }

  /** Starts a process. Resolves when it was executed, or has ended as `not_started`. @throws Refusal sandbox_not_running. */
  async startProcess(spec: ProcessSpec): Promise<SandboxProcess> {
    this.#requireRunning()
    if (!this.#isReported) throw this.#notRunning()
    this.#forgetOldest()
    const process = this.#spawn(spec)
    await process.started
    return process
  }

  /** @param builtin performed by the agent instead of a program, in a working directory that is created. */
  #spawn(spec: ProcessSpec, builtin?: Builtin): SandboxProcess {
    const { user, workdir, env, network } = this.spec
    const spawn: Spawn = {
      argv: spec.argv,
      env: {
        ...this.#parts?.env,
        ...networkEnvOf(network && withCertificates(network, this.#parts?.trust)),
        ...env,
        ...(spec.terminal && { TERM: 'xterm-256color' }),
        ...spec.env,
      },
      cwd: spec.cwd ?? workdir,
      user: spec.user ?? user,
      ...(spec.terminal && { terminal: spec.terminal }),
      ...(spec.stdin && { stdin: true }),
      ...(spec.channel && { channel: true }),
      ...(builtin && { builtin, makesCwd: true }),
    }
    const jail = this.#parts?.jail
    if (!jail) throw this.#notRunning()
    const process = withinFrame(() => new SandboxProcess(jail, spec, spawn, this.#memoryKills))
    this.#processes.set(process.processId, process)
    return process
  }

  /**
   * Performs an operation on files inside, as a user.
   * @throws Refusal sandbox_not_running, files_busy.
   */
  builtin(
    builtin: Builtin,
    argv: readonly string[],
    user = this.spec.user,
    cwd: string = this.spec.workdir,
  ): BuiltinRun {
    this.#requireRunning()
    const limit = builtin === 'watch' ? watchesMax : operationsMax
    const counted = builtin === 'watch' ? 'watches' : 'operations'
    if (this.#builtins[counted] >= limit) throw new Refusal('files_busy', { retryAfterSeconds: 1 })
    const jail = this.#parts?.jail
    if (!jail) throw this.#notRunning()
    const spawn: Spawn = { argv, env: {}, cwd, user, builtin, stdin: builtin === 'write' }
    const [path = '', to] = argv
    const created = builtin === 'move' || builtin === 'copy' ? to : path
    const run = withinFrame(() => new BuiltinRun(jail, spawn, path, created))
    this.#builtins[counted] += 1
    const ended = () => {
      this.#builtins[counted] -= 1
    }
    run.done.then(ended, ended)
    return run
  }

  /** BOUNDARY: bounded, however many a caller starts: ended ones are forgotten first. */
  #forgetOldest(): void {
    if (this.#processes.size < processesMax) return
    const oldest = [...this.#processes.values()].find((process) => process.hasEnded)
    if (!oldest) throw new Refusal('limit_reached', tooMany('processes', processesMax))
    this.#processes.delete(oldest.processId)
  }

  /** @throws Refusal process_unknown. */
  process(processId: number): SandboxProcess {
    const process = this.#processes.get(processId)
    if (!process) throw new Refusal('process_unknown', { process: processId })
    return process
  }

  /** @throws Refusal process_unknown, sandbox_not_running. */
  runningProcess(processId: number): SandboxProcess {
    this.#requireRunning()
    return this.process(processId)
  }

  get processes(): SandboxProcess[] {
    return [...this.#processes.values()]
  }

  /** Forgets an ended process; one that runs is left alone. */
  forget(processId: number): void {
    if (this.process(processId).hasEnded) this.#processes.delete(processId)
  }

  /** Connects to a server on its loopback. @returns a descriptor. @throws Refusal port_closed, sandbox_not_running. */
  async connect(port: number): Promise<number> {
    const { jail } = this.#runningParts()
    if (!this.#isReported) throw this.#notRunning()
    return connectTo(jail, port)
  }

  /** Suspends it. @throws Refusal sandbox_not_running, sandbox_busy. */
  async pause(): Promise<void> {
    if (this.#state.kind === 'paused') return
    this.#requireRunning()
    this.#enter({ kind: 'paused' })
    await this.#parts?.slot.freeze(true)
    this.#idleMemory?.giveBack()
  }

  #runningParts(): SandboxParts {
    this.#requireRunning()
    if (!this.#parts) throw this.#notRunning()
    return this.#parts
  }

  async #whileFrozen<T>(work: () => Promise<T>): Promise<T> {
    const { slot } = this.#runningParts()
    await slot.freeze(true)
    try {
      return await work()
    } finally {
      // Unless it was paused meanwhile.
      if (this.#state.kind !== 'paused') await slot.freeze(false)
    }
  }

  changeNetwork(network: JailNetwork): void {
    this.#parts?.network?.change(network, this.#parts.trust)
  }

  async resume(): Promise<void> {
    if (this.#state.kind === 'running') return
    if (this.#state.kind !== 'paused') throw this.#notRunning()
    await this.#parts?.slot.freeze(false)
    this.#enter({ kind: 'running' })
  }

  /** Sends SIGTERM to its processes, and kills what is left after the grace period. Resolves when nothing lives. */
  async stop(graceMs: number): Promise<void> {
    if (this.#state.kind === 'running' || this.#state.kind === 'paused') {
      const wasPaused = this.#state.kind === 'paused'
      this.#enter({ kind: 'stopping' })
      if (wasPaused) await this.#parts?.slot.freeze(false)
      await endGently(this.processes, graceMs, this.#parts?.jail.ended)
      this.#parts?.jail.kill()
    }
    await this.ended
  }

  async figures(): Promise<SandboxFigures | undefined> {
    const parts = this.#parts
    if (!parts || this.#state.kind === 'crashed' || this.#state.kind === 'stopped') return undefined
    return { ...(await figuresOf(this.spec, parts)), uptimeMs: monotonicMs() - this.#startedMs }
  }

  /** Its jail has ended: by `stop`, or by itself. */
  #lost(): void {
    switch (this.#state.kind) {
      case 'stopping':
        void this.#close({ kind: 'stopped' })
        return
      case 'running':
      case 'paused':
        void this.#close({ kind: 'crashed', reason: this.#crash() })
        return
      case 'starting':
      case 'crashed':
      case 'stopped':
        return
    }
  }

  #crash(): SandboxCrash {
    return this.#parts?.jail.ranOutOfMemory ? 'out_of_memory' : 'slot_lost'
  }

  async #close(state: Extract<SandboxState, { kind: 'crashed' | 'stopped' }>): Promise<void> {
    clearTimeout(this.#filesTimer)
    for (const process of this.#processes.values()) process.end({ kind: 'sandbox_ended' })
    this.uses = (await this.#parts?.network?.close()) ?? []
    await this.#undo.run().catch(() => undefined)
    await this.states.close()
    this.#parts = undefined
    this.#enter(state)
    this.#ended.resolve()
  }

  #enter(state: SandboxState): void {
    this.#state = state
    this.#changed(this)
  }

  #requireRunning(): void {
    if (this.#state.kind === 'starting' || this.#state.kind === 'stopping')
      throw new Refusal('sandbox_busy', { sandbox: this.spec.sandboxId })
    if (this.#state.kind !== 'running') throw this.#notRunning()
  }

  #notRunning(): Refusal {
    return new Refusal('sandbox_not_running', {
      sandbox: this.spec.sandboxId,
      state: this.#isReported ? this.#state.kind : 'stopped',
    })
  }
}
