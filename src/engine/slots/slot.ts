import { monotonicMs } from '../../base/clock.ts'
import { asksForItsFile, programCopies } from '../../base/program-copy.ts'
import type { Language, Limits, RunInput, RunSpec } from '../../base/run.ts'
import type { Consumption } from '../cgroups/cgroups.ts'
import type { ProcessorShare } from '../cgroups/processors.ts'
import type { JailRequest } from '../jails/jail-frames.ts'
import type { NetworkOfJail } from '../jails/jail-network.ts'
import { JailRun, type RunObserver, type SlotRun } from '../jails/jail-run.ts'
import { commandOf, type LanguageFound, prewarmCommandOf, sourceFor } from '../jails/languages.ts'
import { networkEnvOf } from '../jails/network-env.ts'
import { PrewarmedJail } from '../jails/prewarmed-jail.ts'
import { SandboxJail, type SandboxRequest } from '../sandboxes/sandbox-jail.ts'
import type { DockMounts } from './guest-channel.ts'
import type { RunSlot } from './run-slot.ts'
import type { Parts, SlotDock } from './slot-parts.ts'
import type { SpareState } from './spare-interpreter.ts'

export type { RunObserver, SlotRun, SlotRunResult } from '../jails/jail-run.ts'

/**
 * Tasks that the leaf may hold beyond the run's own limit: the jailer, a language host and the jail's init, and some more, so that
 * RLIMIT_NPROC is met first and only hurts the run.
 */
const pidsHeadroom = 8

/** Of the memory limit: what may still be held of an ended run when the next one may begin. */
const memoryHeldShare = 1 / 4

/** A live OCI container with a guest that makes jails, one run at a time. */
export class Slot {
  readonly id: string
  /** How long creation took. */
  readonly createdMs: number
  /** Resolves when the guest is gone, unexpectedly or by `destroy`. */
  readonly lost: Promise<void>
  readonly #parts: Parts
  #bound: Limits | undefined
  #processors: readonly number[] = []
  readonly #limitedDevices = new Set<string>()
  #runs = 0
  /** Jails requested so far: the number of the last one. */
  #jails = 0
  #prewarmed: PrewarmedJail | undefined
  #current: JailRun | undefined
  #sandbox: SandboxJail | undefined
  #unhealthyReason: string | undefined
  #destroyed: Promise<void> | undefined

  constructor(parts: Parts) {
    this.id = parts.id
    this.#parts = { ...parts, undo: parts.undo.keep() }
    this.createdMs = monotonicMs() - parts.startedMs
    this.lost = parts.guest.gone.then((reason) => {
      void this.#condemn(reason)
    })
  }

  /** Runs begun so far. */
  get runs(): number {
    return this.#runs
  }

  /** False after any unhealthyReason: then the slot must be destroyed. */
  get healthy(): boolean {
    return this.#unhealthyReason === undefined
  }

  /** It works, but has lost what made it fast: another one does better. */
  get degraded(): boolean {
    return this.#parts.hosts.lost
  }

  /** How old its language host is: every fork of it has its hash seed and its addresses. 0 without one. */
  get zygoteAgeMs(): number {
    return this.#parts.hosts.ageMs
  }

  /** Why its language host is not there, where it is not. */
  get zygoteProblem(): string | undefined {
    return this.#parts.hosts.problem
  }

  /** What became of the interpreter that waits for a sandbox. */
  get spare(): SpareState {
    return this.#parts.spare.state
  }

  get spareAgeMs(): number {
    return this.#parts.spare.ageMs
  }

  /** Tasks of the slot itself among those of its sandbox. */
  get ownTasks(): number {
    return this.#parts.residents.size
  }

  /** Prepares the first Python kernel of a sandbox, if the slot becomes one. */
  prepareSpare(): void {
    if (this.#bound || this.#unhealthyReason !== undefined) return
    // The user of a sandbox is its own.
    const { USER: _, LOGNAME: __, ...env } = this.#parts.env
    this.#parts.spare.start(this.#parts.languages, env)
  }

  /** What raised the doubt, for the log. */
  get unhealthyReason(): string | undefined {
    return this.#unhealthyReason
  }

  /** What the next run finds done already, of whatever language it was made for. */
  get prewarmed(): 'nothing' | 'making' | 'ready' {
    return this.#prewarmed?.state ?? 'nothing'
  }

  /** Through which storage comes in; absent where this machine has none. */
  get dock(): SlotDock | undefined {
    return this.#parts.dock
  }

  /** Process id of the slot's init on the host: whose ids storage is translated to, and for measuring. */
  get pid(): number {
    return this.#parts.container.pid
  }

  /** Sets the limits under which every run of this slot stands. Once. */
  bind(limits: Limits): void {
    if (this.#bound) throw new Error(`slot ${this.id} is bound already`)
    this.#parts.cgroup.limitRun({ ...limits, pids: limits.pids + pidsHeadroom })
    this.#bound = limits
  }

  /** Limits the operations of its runs on a filesystem of its dock. @param device as `major:minor`. */
  async limitDevice(device: string): Promise<void> {
    if (this.#limitedDevices.has(device)) return
    await this.#parts.cgroup.limitDevice(device, this.#parts.storageIops)
    this.#limitedDevices.add(device)
  }

  /**
   * Runs one program in a fresh jail.
   * @param docked entries of the dock that it has.
   * @param network of a run that has one.
   * @throws Error when the slot is not bound, not healthy, busy, or does not have the language.
   */
  run(
    spec: RunSpec,
    input: RunInput,
    observer: RunObserver,
    docked: DockMounts = {},
    network?: NetworkOfJail,
  ): SlotRun {
    const env = this.#envOf(spec)
    const command = commandOf(this.#language(spec.language), env)
    const code = sourceFor(spec.language, input.code)
    // Python and Node.js copy their programs themselves, since their processes may wait for them.
    const homeCodeFile =
      asksForItsFile(spec.language, code) && !command.hasInputPipe ? programCopies[spec.language] : undefined
    const certificates = spec.network?.certificates
    const request = {
      ...command,
      ...input,
      homeCodeFile,
      code,
      env,
      ...docked,
      limits: spec.limits,
      network,
      certificates,
    }
    return this.#execute(request, observer, this.#prewarmed?.fits(spec) ? this.#prewarmed : undefined)
  }

  /**
   * Makes everything ready for a next run like this one, as far as it can be: its language's host, and a jail with an
   * interpreter that waits. To be called when a run has ended and its answer was given.
   */
  prewarm(spec: RunSpec): void {
    if (this.#unhealthyReason !== undefined || this.#current || !this.#bound) return
    const found = this.#language(spec.language)
    const { hosts } = this.#parts
    const host = hosts.of(found, spec.preload ?? [], () => this.prewarm(spec))
    if (host === 'starting' || this.#prewarmed) return
    const command = prewarmCommandOf(found, spec.env, host === 'ready')
    if (command === undefined) return
    const shownCpus = this.#parts.processors?.countFor(spec.limits.cpus) ?? Math.ceil(spec.limits.cpus)
    const env = command.method === 'fork' ? {} : { ...this.#envOf(spec), ...command.ownEnv }
    this.#prewarmed = new PrewarmedJail(this.#runSlot(shownCpus), ++this.#jails, spec, command, env)
  }

  /** The same for any program of the image; `run` is made from it. */
  execute(request: JailRequest, observer: RunObserver): SlotRun {
    return this.#execute(request, observer, undefined)
  }

  #execute(request: JailRequest, observer: RunObserver, prewarmed: PrewarmedJail | undefined): SlotRun {
    if (!this.#bound) throw new Error(`slot ${this.id} is not bound`)
    if (this.#unhealthyReason !== undefined)
      throw new Error(`slot ${this.id} is of no use any more: ${this.#unhealthyReason}`)
    if (this.#current) throw new Error(`slot ${this.id} is busy`)
    const share = this.#bindTo(request.limits.cpus)
    const shownCpus = share?.processors.length ?? Math.ceil(request.limits.cpus)
    const after = prewarmed ? undefined : this.#prewarmed?.discard()
    this.#prewarmed = undefined
    const run = new JailRun(this.#runSlot(shownCpus), prewarmed ?? { number: ++this.#jails, after }, request, observer)
    this.#runs += 1
    this.#current = run
    const unwatch = this.#parts.mountTurns.watch(this.#parts.cgroup)
    void run.ended.then(() => {
      unwatch()
      this.#current = undefined
      share?.release()
      this.#requireMemoryBack(request.limits.memoryBytes)
    })
    return run
  }

  /**
   * Makes the slot the place of one sandbox, for the rest of its life.
   * @throws Error when the slot is not bound, not healthy, or has had a run.
   */
  openSandbox(request: SandboxRequest): SandboxJail {
    if (!this.#bound || this.#unhealthyReason !== undefined || this.#jails > 0)
      throw new Error(`slot ${this.id} cannot become a sandbox: ${this.#unhealthyReason ?? 'it is not new'}`)
    const share = this.#bindTo(request.limits.cpus)
    const shownCpus = share?.processors.length ?? Math.ceil(request.limits.cpus)
    const takesSpare = request.takesSpare && this.spare === 'ready'
    this.#sandbox = new SandboxJail(this.#runSlot(shownCpus), ++this.#jails, { ...request, takesSpare })
    const unwatch = this.#parts.mountTurns.watch(this.#parts.cgroup)
    void this.#sandbox.ended.then(() => {
      unwatch()
      share?.release()
    })
    return this.#sandbox
  }

  /** What its processes use, by the kernel's counters. */
  consumption(): Consumption {
    return this.#parts.cgroup.consumption()
  }

  /** Processes that the kernel killed for memory since the sandbox began. */
  get oomKills(): number {
    return this.#parts.cgroup.oomKills()
  }

  /** Processor time that its processes have used so far. */
  get cpuSeconds(): number {
    return this.#parts.cgroup.cpuSeconds()
  }

  /** Gives back memory that its processes can do without. */
  reclaim(): Promise<void> {
    return this.#parts.cgroup.reclaim()
  }

  /** Suspends its processes, or lets them continue. @throws Error when the kernel does not. */
  freeze(isFrozen: boolean): Promise<void> {
    return this.#parts.cgroup.freezer.freeze(isFrozen)
  }

  /** Mounts something that one of its runs uses. */
  mounting<T>(work: () => Promise<T>): Promise<T> {
    return this.#parts.mountTurns.during(work)
  }

  /** The variables of a run, without those of its interpreter. */
  #envOf(spec: RunSpec): Record<string, string> {
    return { ...this.#parts.env, ...networkEnvOf(spec.network), ...spec.env }
  }

  #runSlot(shownCpus: number): RunSlot {
    const { guest, cgroup, residents, mountTurns, sockets } = this.#parts
    const beginMounting = () => mountTurns.begin()
    const condemn = (reason: string) => this.#condemn(reason)
    return { guest, cgroup, residents, sockets, shownCpus, beginMounting, condemn }
  }

  /**
   * Everything of the last run is dead, but the kernel frees the System V segments of its namespace later, and until then
   * a next run would go short of their memory, or die of it. (Its messages are as late; no counter of the kernel distinguishes them
   * from what may stay, such as names that it remembers.)
   */
  #requireMemoryBack(limitBytes: number): void {
    if (this.#unhealthyReason === undefined && this.#parts.cgroup.sharesMoreThan(limitBytes * memoryHeldShare))
      void this.#condemn('the memory of its last run was not free again')
  }

  /** Gives the next run its processors, where that can be. */
  #bindTo(cpus: number): ProcessorShare | undefined {
    const share = this.#parts.processors?.take(cpus, this.#processors)
    if (share === undefined || share.processors.join() === this.#processors.join()) return share
    try {
      this.#parts.cgroup.bindRun(share.processors)
    } catch (error) {
      share.release()
      throw error
    }
    this.#processors = share.processors
    return share
  }

  /**
   * Ends everything in the slot and leaves nothing behind. Idempotent.
   * @throws AggregateError when something could not be removed; its id range stays taken until another call succeeds.
   */
  destroy(): Promise<void> {
    this.#unhealthyReason ??= 'it was destroyed'
    // Later by a tick, so that what #end calls finds this promise.
    this.#destroyed ??= Promise.resolve()
      .then(() => this.#end())
      .catch((error: unknown) => {
        this.#destroyed = undefined
        throw error
      })
    return this.#destroyed
  }

  async #end(): Promise<void> {
    this.#prewarmed?.abandon()
    this.#current?.abandon(this.#condemn('it was destroyed'))
    this.#sandbox?.abandon(this.#unhealthyReason ?? 'it was destroyed', this.#condemn('it was destroyed'))
    this.#parts.guest.close('the slot was destroyed')
    await this.#parts.undo.run()
  }

  async #condemn(reason: string): Promise<void> {
    this.#unhealthyReason ??= reason
    // A failure is the pool's to learn, from its own call of `destroy`.
    await this.destroy().catch(() => undefined)
  }

  #language(language: Language): LanguageFound {
    const found = this.#parts.languages.find((candidate) => candidate.language === language)
    if (!found) throw new Error(`the image has no ${language}`)
    return found
  }
}
