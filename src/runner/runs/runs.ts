import { Cleanup } from '../../base/cleanup.ts'
import { monotonicMs, wallMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { JailNetwork } from '../../base/network.ts'
import { OutputPace } from '../../base/output-pace.ts'
import { asksForItsFile } from '../../base/program-copy.ts'
import {
  type CancelCause,
  type ChangedFiles,
  type ImageType,
  type Language,
  type RunInput,
  type RunResult,
  type RunSpec,
  type Stream,
  type Timings,
  unmeasured,
} from '../../base/run.ts'
import type { Egress, OpenNetwork, Trust } from '../../egress/client.ts'
import type { DockMounts } from '../../engine/slots/guest-channel.ts'
import type { SlotPool } from '../../engine/slots/pool.ts'
import type { Lease } from '../../engine/slots/pool-settings.ts'
import type { FairQueue, Place } from '../../engine/slots/queue.ts'
import type { SlotRun } from '../../engine/slots/slot.ts'
import type { RunnerFigures } from '../../observe/metrics.ts'
import { processFigures } from '../../observe/process-figures.ts'
import { trustFor, withCertificates } from '../network-trust.ts'
import type { RunSummary } from '../protocol/messages.ts'
import type { NetworkedRun } from '../protocol/network-messages.ts'
import type { OpenStorage } from '../storage/storage.ts'
import { OutputLog } from './output-log.ts'
import { RunStorage } from './run-storage.ts'

export interface KeptRuns {
  /** Endings that wait for a front to acknowledge them. */
  count: number
  /** Output kept with them. */
  bytes: number
}

/** What is remembered of ended runs at most; beyond it the oldest are forgotten. */
const keptRuns: KeptRuns = { count: 2_000, bytes: 256 * 1024 * 1024 }

/** Returns the languages of an image. @throws Refusal image_unknown. */
export type LanguagesOf = (image: string | undefined) => readonly Language[]

interface Run {
  spec: RunSpec
  state: RunSummary['state']
  outputLog: OutputLog
  /** Why it must stop, requested before it had started. */
  stopCause: CancelCause | undefined
  stopping: AbortController
  slotRun: SlotRun | undefined
  /** While its jail lives, for a run that has one. */
  network: OpenNetwork | undefined
  trust: Trust | undefined
  /** Until its jail is dead. */
  storage: RunStorage
  taken: Promise<void>
}

/** The runs of this runner, from the request until their ending is acknowledged. */
export class Runs {
  readonly #queue: FairQueue
  readonly #pool: SlotPool
  readonly #storage: OpenStorage | undefined
  readonly #egress: Egress | undefined
  readonly #languagesOf: LanguagesOf
  readonly #log: (error: unknown, runId: string) => void
  readonly #pace = new OutputPace()
  readonly #runs = new Map<string, Run>()
  #active = 0
  #idle: (() => void) | undefined

  /**
   * @param storage absent if the runner has no storage.
   * @param languagesOf what an image has.
   * @param log receives slots that could not be created or released.
   * @param egress opens the network of runs that have one; absent if none has.
   */
  constructor(
    queue: FairQueue,
    pool: SlotPool,
    storage: OpenStorage | undefined,
    languagesOf: LanguagesOf,
    log: (error: unknown, runId: string) => void,
    egress?: Egress,
  ) {
    this.#queue = queue
    this.#pool = pool
    this.#storage = storage
    this.#egress = egress
    this.#languagesOf = languagesOf
    this.#log = log
  }

  /**
   * Takes a run; idempotent by its id. Resolves when it has a place to run in.
   * @throws Refusal `language_unavailable`, `image_unknown`, `thread_busy`, `queue_full` and `queue_timeout` when it got no place, `run_finished` when it was
   * cancelled while it waited, `volume_unknown`, `unavailable` when its storage could not be had.
   */
  async start(spec: RunSpec, input: RunInput): Promise<void> {
    const known = this.#runs.get(spec.runId)
    if (known) return known.taken
    const { language } = spec
    if (spec.network && !this.#egress) throw new Refusal('unavailable', { reason: 'the runner has no network' })
    const offered = this.#languagesOf(spec.image)
    if (!offered.includes(language)) throw new Refusal('language_unavailable', { language, offered })
    const run: Run = {
      spec,
      state: 'queued',
      outputLog: new OutputLog(spec.limits.outputSoftBytes),
      stopCause: undefined,
      stopping: new AbortController(),
      slotRun: undefined,
      network: undefined,
      trust: undefined,
      storage: new RunStorage(spec, this.#storage),
      taken: Promise.resolve(),
    }
    this.#runs.set(spec.runId, run)
    run.taken = this.#take(run, input)
    return run.taken
  }

  /** @throws Refusal `run_unknown`. */
  outputLog(runId: string): OutputLog {
    return this.#known(runId).outputLog
  }

  /** @throws Refusal `run_unknown`, `run_finished`. */
  cancel(runId: string, cause: CancelCause): void {
    const run = this.#known(runId)
    if (run.state === 'ended') throw new Refusal('run_finished', { runId })
    run.stopCause ??= cause
    run.stopping.abort(new Refusal('run_finished', { runId }))
    run.slotRun?.stop(run.stopCause)
  }

  /** @throws Refusal `run_unknown`. */
  outlive(runId: string): void {
    const run = this.#known(runId)
    run.spec = { ...run.spec, detached: true }
  }

  /** Those that have a network and have not ended. */
  networked(): NetworkedRun[] {
    const runs = [...this.#runs.values()].filter(({ spec, state }) => spec.network !== undefined && state !== 'ended')
    return runs.map(({ spec: { runId, keyId } }) => ({ runId, keyId }))
  }

  /** Applies another policy to a run that has a network. @throws Refusal `run_unknown`. */
  changeNetwork(runId: string, network: JailNetwork): void {
    const run = this.#known(runId)
    if (run.spec.network === undefined) return
    run.spec = { ...run.spec, network: withCertificates(network, run.trust) }
    run.network?.change(network, run.trust)
  }

  /** Forgets a run that has ended; one that has not, or is unknown, is left alone. */
  acknowledge(runId: string): void {
    if (this.#runs.get(runId)?.state === 'ended') this.#runs.delete(runId)
  }

  /** Ends the slots of a key, and its runs as cancelled. */
  async retireKey(keyId: string): Promise<void> {
    this.#cancelWhere((run) => run.spec.keyId === keyId, 'cancelled')
    await this.#pool.retireKey(keyId)
  }

  /** How much is going on here now. */
  figures(): RunnerFigures {
    const { ready, idle, busy, undying } = this.#pool.size
    return {
      waiting: this.#queue.waiting,
      running: this.#queue.running,
      slots: { ready, idle, busy, undying },
      jailsWaiting: this.#pool.jailsWaiting,
      filesystemsMounted: this.#storage?.mounts.size.mounted ?? 0,
      ...(this.#storage && { storageFreeBytes: this.#storage.watch.room.freeBytes }),
      ...(this.#egress?.totals && { network: this.#egress.totals }),
      ...(this.#egress?.packageTotals && { packages: this.#egress.packageTotals }),
      process: processFigures(),
    }
  }

  list(): RunSummary[] {
    const summary = ({ spec: { runId, orgId, keyId, detached }, state }: Run): RunSummary => ({
      ...{ runId, orgId, keyId, detached, state },
    })
    return [...this.#runs.values()].map(summary)
  }

  /** Ends all that go on; resolves when they have ended. */
  async shutDown(): Promise<void> {
    this.#cancelWhere(() => true, 'shutdown')
    if (this.#active > 0) await new Promise<void>((resolve) => (this.#idle = resolve))
  }

  #cancelWhere(matches: (run: Run) => boolean, cause: CancelCause): void {
    for (const run of this.#runs.values()) {
      if (run.state !== 'ended' && matches(run)) this.cancel(run.spec.runId, cause)
    }
  }

  async #take(run: Run, input: RunInput): Promise<void> {
    const askedMs = monotonicMs()
    const undo = new Cleanup()
    undo.add(() => void this.#runs.delete(run.spec.runId))
    undo.add(() => run.storage.release())
    try {
      const place = undo.owns(await this.#queue.enter(run.spec.orgId, run.stopping.signal))
      this.#active += 1
      undo.add(() => this.#passive())
      const queueMs = monotonicMs() - askedMs
      const preparingMs = monotonicMs()
      await run.storage.mount()
      undo.keep()
      void this.#carry(run, input, place, { queueMs, preparingMs })
    } catch (error) {
      await undo.run()
      throw error
    }
  }

  /** From having a place and its storage until the ending is sent. Never rejects. */
  async #carry(
    run: Run,
    input: RunInput,
    place: Place,
    { queueMs, preparingMs }: { queueMs: number; preparingMs: number },
  ): Promise<void> {
    run.state = 'preparing'
    let lease: Lease | undefined
    let result: RunResult
    let endedMs: number
    try {
      await this.#addTrust(run)
      lease = await this.#pool.acquire(run.spec)
      const { slot } = lease
      const docked = await slot.mounting(() => run.storage.attach(slot))
      const slotMs = monotonicMs() - preparingMs
      ;({ result, endedMs } = await this.#execute(run, input, lease, docked, { queueMs, slotMs }))
    } catch (error) {
      this.#log(error, run.spec.runId)
      endedMs = monotonicMs()
      result = unmeasured(run.spec.limits, { kind: 'failed', reason: 'slot_failed' })
      result.timings = { ...result.timings, queueMs, slotMs: endedMs - preparingMs }
    }
    // Before its ending is sent: a client that receives it may use its storage immediately.
    await run.storage.release().catch((error: unknown) => this.#log(error, run.spec.runId))
    result.timings = { ...result.timings, drainMs: monotonicMs() - endedMs }
    this.#finish(run, result)
    this.#passive()
    await lease?.release().catch((error: unknown) => this.#log(error, run.spec.runId))
    place.release()
  }

  /** A run with secrets has certificates of its own, and finds jails that were made with them. */
  async #addTrust(run: Run): Promise<void> {
    const { keyId, profileRevision } = run.spec
    run.trust = await trustFor(run.spec.network, `${keyId} ${profileRevision}`, this.#egress)
    const { network } = run.spec // It may have changed meanwhile.
    if (network !== undefined && run.trust !== undefined)
      run.spec = { ...run.spec, network: withCertificates(network, run.trust) }
  }

  #passive(): void {
    this.#active -= 1
    if (this.#active === 0) this.#idle?.()
  }

  async #execute(
    run: Run,
    input: RunInput,
    lease: Lease,
    docked: DockMounts,
    waited: Pick<Timings, 'queueMs' | 'slotMs'>,
  ): Promise<{ result: RunResult; endedMs: number }> {
    if (run.stopCause) {
      const result = unmeasured(run.spec.limits, { kind: run.stopCause })
      return { result: { ...result, timings: { ...result.timings, ...waited } }, endedMs: monotonicMs() }
    }
    const observer = {
      running: () => {
        run.state = 'running'
        run.outputLog.running()
      },
      output: (stream: Stream, bytes: Uint8Array) => run.outputLog.append(stream, bytes),
      excess: (bytes: number) => this.#pace.count(run.spec.orgId, bytes),
      image: (mimeType: ImageType, bytes: Uint8Array) => run.outputLog.image(mimeType, bytes),
    }
    const startMs = wallMs()
    const { network: wanted, orgId, keyId } = run.spec
    run.network = wanted && this.#egress?.jail(wanted, { kind: 'run', orgId, keyId }, run.trust)
    run.slotRun = lease.slot.run(run.spec, input, observer, docked, run.network)
    run.storage.watch(() => run.slotRun?.stop('cancelled'))
    const { jailMs, hostMs, runMs, endedMs, ending, ...measured } = await run.slotRun.ended
    const network = await run.network?.close()
    if (asksForItsFile(run.spec.language, input.code))
      await run.storage.removeProgramCopies().catch((error: unknown) => this.#log(error, run.spec.runId))
    const seen = await run.storage.endingOf(ending)
    const files = run.state === 'running' ? await this.#changes(run, startMs) : undefined
    const kept = await run.storage.keep(seen, files)
    const timings = { ...waited, jailMs, hostMs, runMs, drainMs: 0 }
    return {
      result: { ...measured, ending: kept, timings, ...(files && { files }), ...(network && { network }) },
      endedMs,
    }
  }

  /** A filesystem that cannot be read any more takes nothing else from the answer. */
  async #changes({ spec: { runId, thread }, storage }: Run, startMs: number): Promise<ChangedFiles | undefined> {
    try {
      return await storage.changesSince(startMs)
    } catch (error) {
      this.#log(error, runId)
      return thread && { threadId: thread.id, changed: [], truncated: true }
    }
  }

  #finish(run: Run, result: RunResult): void {
    run.state = 'ended'
    run.slotRun = undefined
    run.network = undefined
    run.outputLog.finish(result)
    this.#forgetOldest()
  }

  /** BOUNDARY: a front that never acknowledges must not make the runner grow. */
  #forgetOldest(): void {
    const ended = [...this.#runs.values()].filter((run) => run.state === 'ended')
    let bytes = ended.reduce((sum, run) => sum + run.outputLog.retainedBytes, 0)
    for (let count = ended.length; count > keptRuns.count || bytes > keptRuns.bytes; count--) {
      const oldest = ended.shift()
      if (!oldest) return
      bytes -= oldest.outputLog.retainedBytes
      this.#runs.delete(oldest.spec.runId)
    }
  }

  #known(runId: string): Run {
    const run = this.#runs.get(runId)
    if (!run) throw new Refusal('run_unknown', { runId })
    return run
  }
}
