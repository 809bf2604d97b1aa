import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs, timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { CancelCause, Ending, RunResult, RunSpec } from '../../base/run.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import type { Runner, RunSummary } from '../../runner/protocol/messages.ts'
import type { RunExtras } from '../../store/run-history.ts'
import type { ClaimRow, KeptOutput, RunRow, Store } from '../../store/store.ts'
import type { UsageLimiter } from '../access/usage-limiter.ts'
import type { Caller } from '../caller.ts'
import type { Webhooks } from '../jobs/webhooks.ts'
import { ThreadLocks } from '../storage/thread-locks.ts'
import type { Volumes } from '../storage/volumes.ts'
import { KnownHistorySettings } from './history-settings.ts'
import type { Claim } from './idempotency.ts'
import { OutputFold } from './output-fold.ts'
import type { CheckedRequest } from './request.ts'
import { type BegunRun, type NewRunRow, type RunDeps, toClaimRow, toRow, toRunSpec } from './run-rows.ts'

/** How soon a runner that came back is noticed; only a property is read, so it costs nothing. */
const watchIntervalMs = 500

/** After a look that failed; long enough that a database out of order does not fill the log. */
const retryMs = 2_000

/** From the order to end a run until its ending is written; the kernel kills at once, the rest is bookkeeping. */
const endingMs = 5_000

/**
 * The rows of runs, each from its beginning to its one ending. What this front follows itself is in flight here;
 * every other row without an ending is settled by `recover`, as often as a runner appears.
 */
export class Runs {
  readonly #store: Store
  readonly #runner: Runner
  readonly #log: Log
  readonly #metrics: Metrics
  readonly #inFlight = new Set<string>()
  readonly #threads: ThreadLocks
  readonly #volumes: Volumes
  readonly #allowances: UsageLimiter
  readonly #keeps: KnownHistorySettings
  readonly #webhooks: Webhooks
  #watch: NodeJS.Timeout | undefined
  #recoveredLife: string | undefined
  #retryAtMs = Number.POSITIVE_INFINITY
  #recovering: Promise<void> | undefined
  #closing = false

  constructor({ store, runner, volumes, allowances, webhooks, metrics, log }: RunDeps) {
    this.#webhooks = webhooks
    this.#store = store
    this.#allowances = allowances
    this.#runner = runner
    this.#log = log
    this.#metrics = metrics
    this.#threads = new ThreadLocks(store, log)
    this.#keeps = new KnownHistorySettings(store)
    this.#volumes = volumes
  }

  /** Recovers now if a runner is there, and again each time another life of a runner appears. */
  async startWatching(): Promise<void> {
    this.#threads.start()
    this.#watch = setInterval(() => void this.#lookForRunner(), watchIntervalMs).unref()
    await this.#lookForRunner()
  }

  /**
   * Writes the row of a run that is about to start, with a claim so that it survives a power cut, and then gives it its
   * thread. In this order a repeat with the same claim finds the first one, not a busy thread, and a lock always has a
   * run that it ends with.
   * @returns the claim that stands already, where the caller asked for the same before.
   * @throws Refusal `unavailable` while no runner is connected or this front is closing, `unauthorized` when the key
   * was revoked since it was looked at, `limit_reached`, `thread_busy`, `volume_missing`.
   */
  async begin(caller: Caller, asked: CheckedRequest): Promise<BegunRun | { taken: ClaimRow }> {
    const spec = toRunSpec(caller, asked, await this.#volumes.ofRun(caller))
    if (this.#closing) throw new Refusal('unavailable', { reason: 'the server is shutting down' })
    const { identity: owner, readiness } = this.#runner
    if (!readiness.ready) throw new Refusal('unavailable', { reason: readiness.reason })
    if (owner === undefined) throw new Refusal('unavailable', { reason: 'the runner is not connected' })
    // With a claim it may be the same call once more, which is no conflict.
    if (asked.thread && !asked.claim) await this.#threads.expectFree(caller.orgId, asked.thread)
    const subject = asked.thread
      ? await this.#threads.subjectFor(caller.orgId, asked.thread, asked.subject)
      : asked.subject
    const { webhookUrl } = asked
    const delivery = webhookUrl === undefined ? undefined : await this.#webhooks.promise(caller.orgId, webhookUrl)
    const createdAt = timestamp()
    const keeps = await this.#keeps.of(caller.orgId)
    const kept = asked.kept || keeps.keep_output
    const row = toRow(spec, { ...asked, subject, kept, keepsOutput: keeps.keep_output }, owner, createdAt)
    await this.#allowances.admit(row)
    this.#inFlight.add(row.id)
    const taken = await this.#write(row, asked.claim, { ...(keeps.keep_code && { code: asked.input.code }), delivery })
    if (taken) return { taken }
    try {
      await this.#requireLiveKey(spec)
      const thread = asked.thread && (await this.#threads.lock(spec, asked.thread, subject))
      return { spec: { ...spec, ...(thread && { thread }) }, createdAt, kept }
    } catch (error) {
      const notStarted = this.close(spec.runId, { kind: 'failed', reason: 'not_started' })
      await notStarted.catch((unwritten: unknown) => this.#leaveForLater(unwritten))
      throw error
    }
  }

  /** @returns the claim that stands already, and then nothing was written. */
  async #write(row: NewRunRow, claim: Claim | undefined, beside: RunExtras): Promise<ClaimRow | undefined> {
    let wrote = false
    try {
      if (claim) {
        const taken = await this.#store.runs.beginOnce(row, toClaimRow(row, claim), beside)
        if (taken) return taken
      } else await this.#store.runs.begin(row, beside)
      wrote = true
      return undefined
    } finally {
      if (!wrote) this.#leave(row.id, 0)
    }
  }

  /** Once the row is there a revocation finds it, so one that came before is seen here and none is missed. */
  async #requireLiveKey({ keyId }: RunSpec): Promise<void> {
    const key = await this.#store.keys.get(keyId)
    if (key?.revokedAt !== null) throw new Refusal('unauthorized')
  }

  /**
   * Writes the ending of a run and then lets the runner forget it, for which nobody waits. Never rejects: a result that
   * could not be written still reaches its caller, and `recover` writes it later, since the runner keeps what was not
   * acknowledged.
   * @returns the result with the time that writing took.
   */
  async finish(runId: string, result: RunResult, output?: KeptOutput): Promise<RunResult> {
    try {
      const recordMs = await this.#record(runId, result.ending, result, output)
      void this.#acknowledge(runId)
      return { ...result, timings: { ...result.timings, recordMs } }
    } catch (error) {
      this.#leaveForLater(error)
      return result
    } finally {
      await this.#threads.free(runId)
      this.#leave(runId, result.durationMs)
    }
  }

  /** Writes an ending, and counts it when it is the first. @returns how long that took, in milliseconds. */
  async #record(runId: string, ending: Ending, result: RunResult | null, output?: KeptOutput): Promise<number> {
    const startedMs = monotonicMs()
    const run = await this.#store.runs.finish(runId, timestamp(), ending, result, output)
    const recordMs = monotonicMs() - startedMs
    if (run) this.#metrics.ran(run.language, ending.kind, result && { ...result.timings, recordMs })
    return recordMs
  }

  /** It goes on no longer, or is followed no longer. */
  #leave(runId: string, ranMs: number): void {
    this.#inFlight.delete(runId)
    this.#allowances.release(runId, ranMs)
  }

  /** Writes the ending of a run that has no result: nothing of it was measured, for it was not executed. */
  async close(runId: string, ending: Ending): Promise<void> {
    try {
      await this.#store.runs.unclaim(runId)
      // Whoever asked is told now that it was refused; of a run that was cancelled before it began the ending is told.
      if (ending.kind === 'failed') await this.#store.deliveries.drop(runId)
      await this.#record(runId, ending, null)
    } finally {
      await this.#threads.free(runId)
      this.#leave(runId, 0)
    }
  }

  /**
   * Ends a run of the caller's org.
   * @throws Refusal `run_unknown` (also for a run of another org), `run_finished`.
   */
  async cancel(caller: Caller, runId: string): Promise<void> {
    const row = await this.#own(caller, runId)
    if (row.finishedAt !== null) throw new Refusal('run_finished', { runId })
    await this.#runner.cancel(runId, 'cancelled')
  }

  /**
   * Lets a run of the caller's org go on when this front is gone; one that has ended stays as it is.
   * @throws Refusal `run_unknown` (also for a run of another org).
   */
  async outlive(caller: Caller, runId: string): Promise<void> {
    const row = await this.#own(caller, runId)
    if (row.finishedAt === null) await this.#runner.outlive(runId)
  }

  async #own({ orgId }: Caller, runId: string): Promise<RunRow> {
    const row = await this.#store.runs.get(runId)
    if (row === undefined || row.orgId !== orgId) throw new Refusal('run_unknown', { runId })
    return row
  }

  /** Tells the runner to end a run; its ending comes to whoever follows it. Never rejects. */
  async requestCancel(runId: string, cause: CancelCause): Promise<void> {
    try {
      await this.#runner.cancel(runId, cause)
    } catch (error) {
      if (!(error instanceof Refusal)) fault(error, this.#log)
    }
  }

  /** Takes over a run whose reader went away: follows it to its end, cancelled first unless it is detached. */
  abandon(run: BegunRun, seenSeq: number): void {
    if (!this.#inFlight.has(run.spec.runId)) return
    if (!run.spec.detached) void this.requestCancel(run.spec.runId, 'cancelled')
    void this.#follow(run.spec.runId, seenSeq, run.kept ? run.spec.limits.outputSoftBytes : 0)
  }

  /**
   * Gives every row without an ending one: its run is either found with the runner and followed, or closed as
   * `interrupted`. Whoever waited for a run that is not detached left with the front that died: it is cancelled. What the runner still keeps of runs that have their ending is ended and forgotten.
   * Does nothing while no runner is connected: it happens by itself when one is.
   */
  recover(): Promise<void> {
    this.#recoveredLife = undefined
    return this.#lookForRunner()
  }

  async #settle(): Promise<void> {
    const kept = new Map((await this.#runner.list()).map((run) => [run.runId, run]))
    for (const row of await this.#store.runs.unfinished()) {
      if (this.#inFlight.has(row.id)) continue
      const run = kept.get(row.id)
      if (run) {
        if (!run.detached && run.state !== 'ended') await this.requestCancel(run.runId, 'cancelled')
        this.#allowances.adopt(row)
        this.#adopt(row.id, row.kept)
      } else {
        await this.#record(row.id, { kind: 'failed', reason: 'interrupted' }, null)
        await this.#threads.free(row.id)
      }
    }
    for (const run of kept.values()) if (!this.#inFlight.has(run.runId)) await this.#letGo(run)
    await this.#threads.freeEnded()
  }

  /**
   * Stops watching and takes no further run. `shutdown` waits for the runs followed here and ends those that are left;
   * `leave` leaves them to the runner and to the next front.
   * @param graceMs how long runs may go on before they are ended.
   */
  async stop(what: 'shutdown' | 'leave', graceMs: number): Promise<void> {
    this.#closing = true
    clearInterval(this.#watch)
    await this.#recovering
    if (what === 'shutdown') await this.#endAll(graceMs)
    await this.#threads.stop()
  }

  async #endAll(graceMs: number): Promise<void> {
    if (!(await this.#settledWithin(graceMs))) {
      await Promise.all([...this.#inFlight].map((runId) => this.requestCancel(runId, 'shutdown')))
      await this.#settledWithin(endingMs)
    }
  }

  /** @returns whether every run followed here has its ending. */
  async #settledWithin(limitMs: number): Promise<boolean> {
    const untilMs = monotonicMs() + limitMs
    while (this.#inFlight.size > 0 && monotonicMs() < untilMs) await sleep(20)
    return this.#inFlight.size === 0
  }

  /** One look at a time. */
  #lookForRunner(): Promise<void> {
    this.#recovering ??= this.#recoverOnce().finally(() => {
      this.#recovering = undefined
    })
    return this.#recovering
  }

  async #recoverOnce(): Promise<void> {
    const { identity } = this.#runner
    const life = identity && `${identity.runnerId} ${identity.epoch}`
    if (life === this.#recoveredLife && monotonicMs() < this.#retryAtMs) return
    this.#recoveredLife = life
    this.#retryAtMs = Number.POSITIVE_INFINITY
    if (life === undefined) return
    try {
      await this.#settle()
    } catch (error) {
      this.#leaveForLater(error)
    }
  }

  /** A row stays open for now; it is looked for again. */
  #leaveForLater(error: unknown): void {
    this.#retryAtMs = monotonicMs() + retryMs
    if (!(error instanceof Refusal)) fault(error, this.#log)
  }

  #adopt(runId: string, kept: boolean): void {
    this.#inFlight.add(runId)
    this.#threads.adopt(runId)
    void this.#follow(runId, 0, kept ? adoptedKeptBytes : 0)
  }

  /**
   * Reads a run to its end for its row alone. Never rejects.
   * @param keptBytes limit on the output that is kept; 0 when none is, and the run is then read from `afterSeq` on.
   */
  async #follow(runId: string, afterSeq: number, keptBytes: number): Promise<void> {
    const fold = keptBytes > 0 ? new OutputFold(keptBytes) : undefined
    try {
      for await (const event of this.#runner.attach(runId, fold ? 0 : afterSeq)) {
        if (event.kind === 'ended') return void (await this.finish(runId, event.result, fold?.kept()))
        if (event.kind !== 'running') fold?.add(event)
      }
      throw new Error(`the events of ${runId} stopped before its ending`)
    } catch (error) {
      // A run that the runner does not know any more is closed by the next look, like one that is not listed.
      this.#leave(runId, 0)
      this.#leaveForLater(error)
    }
  }

  /** A run that nobody follows although the runner keeps it: its row is closed already, or was never written here. */
  async #letGo(run: RunSummary): Promise<void> {
    const row = await this.#store.runs.get(run.runId)
    if (row !== undefined && row.finishedAt === null) return
    if (run.state !== 'ended') await this.requestCancel(run.runId, 'cancelled')
    this.#adopt(run.runId, false)
  }

  async #acknowledge(runId: string): Promise<void> {
    try {
      await this.#runner.acknowledge(runId)
    } catch (error) {
      // A runner that is gone has nothing to forget; one that comes back is asked again by `recover`.
      if (!(error instanceof Refusal)) fault(error, this.#log)
    }
  }
}

/** Limit on the kept output of a run that an earlier front began; the runner enforces the limit of its profile. */
const adoptedKeptBytes = 1024 * 1024
