import { monotonicMs, steadyTimestamp, timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { InTurn } from '../../base/in-turn.ts'
import type { CancelCause, Ending, RunResult } from '../../base/run.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { RunExtras } from '../../store/run-history.ts'
import type { IdempotencyRow, KeptOutput, RunRow, Store } from '../../store/store.ts'
import type { NetworkSecrets } from '../access/network-secrets.ts'
import type { UsageLimiter } from '../access/usage-limiter.ts'
import type { Caller } from '../caller.ts'
import type { Webhooks } from '../jobs/webhooks.ts'
import type { ThreadLocks } from '../storage/thread-locks.ts'
import type { Volumes } from '../storage/volumes.ts'
import { KnownHistorySettings } from './history-settings.ts'
import type { IdempotencyRecord } from './idempotency.ts'
import { InFlight } from './in-flight.ts'
import { OutputFold } from './output-fold.ts'
import { RefusedCalls } from './refused-calls.ts'
import { type EndingReports, reportEnding } from './report-ending.ts'
import type { CheckedRequest } from './request.ts'
import { RunEndings } from './run-endings.ts'
import { type RecoverableRuns, RunRecovery } from './run-recovery.ts'
import {
  type BegunRun,
  type FinishedRun,
  type NewRunRow,
  type RunDeps,
  requireLiveKey,
  toIdempotencyRow,
  toRow,
  toRunSpec,
} from './run-rows.ts'

/** Maximum time from a cancellation until the ending is written. The kernel kills the processes immediately. */
const endingMs = 5_000

/**
 * Owns the rows of runs, each from its beginning to its single ending. The runs that this process follows are in flight;
 * `RunRecovery` gives an ending to all other rows without one.
 */
export class Runs {
  readonly #store: Store
  readonly #runner: Runner
  readonly #log: Log
  readonly #reports: EndingReports
  readonly #inFlight = new InFlight()
  readonly #threads: ThreadLocks
  readonly #volumes: Volumes
  readonly #secrets: NetworkSecrets
  readonly #allowances: UsageLimiter
  readonly #keeps: KnownHistorySettings
  readonly #webhooks: Webhooks
  readonly #refused: RefusedCalls
  /** Serializes the beginning of calls with the same idempotency key. */
  readonly #beginning = new InTurn()
  readonly recovery: RunRecovery
  /** Announces each ending that this process writes. */
  readonly endings = new RunEndings()
  #closing = false

  constructor({ store, runner, threads, volumes, secrets, allowances, webhooks, metrics, log }: RunDeps) {
    this.#webhooks = webhooks
    this.#store = store
    this.#allowances = allowances
    this.#runner = runner
    this.#log = log
    this.#reports = { metrics, log, changes: this.endings.changes }
    this.#threads = threads
    this.#keeps = new KnownHistorySettings(store)
    this.#volumes = volumes
    this.#secrets = secrets
    this.#refused = new RefusedCalls({ store, metrics, log })
    this.recovery = new RunRecovery(this.#recoverable(), { store, runner, log })
  }

  /** Recovers runs now if a runner is connected, and again whenever a new runner process connects. */
  async start(): Promise<void> {
    this.#threads.start()
    this.#refused.start()
    await this.recovery.start()
  }

  /**
   * Writes the row of a run that is about to start, with its idempotency key in the same transaction, and then locks its
   * thread. In this order, a repeat with the same key finds the first run instead of a busy thread, and every lock belongs
   * to a run that releases it.
   * @returns the existing record, if a run with the same idempotency key exists.
   * @throws Refusal `unavailable` while no runner is connected or this front is closing, `unauthorized` if the key was
   * revoked after its authentication, `limit_reached`, `thread_busy`, `volume_missing`, `secret_missing`.
   */
  async begin(caller: Caller, asked: CheckedRequest): Promise<BegunRun | { existing: IdempotencyRow }> {
    try {
      return await (asked.idempotency ? this.#beginOnce(caller, asked, asked.idempotency) : this.#begin(caller, asked))
    } catch (error) {
      if (error instanceof Refusal) this.countRefused(caller, error)
      throw error
    }
  }

  /** Counts a call that was refused before it ran. Such a call has no row. */
  countRefused(caller: Caller, refusal: Refusal): void {
    this.#refused.count(caller, refusal)
  }

  /** Begins a run with an idempotency key. Finds a repeat before any limit is checked; equal keys are serialized. */
  #beginOnce(
    caller: Caller,
    asked: CheckedRequest,
    { idempotencyKey }: IdempotencyRecord,
  ): Promise<BegunRun | { existing: IdempotencyRow }> {
    const { orgId, keyId } = caller
    return this.#beginning.run(`${keyId} ${idempotencyKey}`, async () => {
      const existing = await this.#store.runs.idempotencyRecord({ orgId, keyId, idempotencyKey }, timestamp())
      return existing ? { existing } : this.#begin(caller, asked)
    })
  }

  async #begin(caller: Caller, asked: CheckedRequest): Promise<BegunRun | { existing: IdempotencyRow }> {
    const spec = toRunSpec(caller, asked, await this.#volumes.ofRun(caller), await this.#secrets.networkOf(caller))
    if (this.#closing) throw new Refusal('unavailable', { reason: 'the server is shutting down' })
    const { identity: owner, readiness } = this.#runner
    if (!readiness.ready) throw new Refusal('unavailable', { reason: readiness.reason })
    if (owner === undefined) throw new Refusal('unavailable', { reason: 'the runner is not connected' })
    this.#refused.expectRoom(caller.orgId)
    // With an idempotency key, the run that uses the thread can be the one that this call repeats.
    if (asked.thread && !asked.idempotency) await this.#threads.expectFree(caller.orgId, asked.thread)
    const { subject, isNew } = asked.thread
      ? await this.#threads.subjectFor(caller.orgId, asked.thread, asked.subject)
      : { subject: asked.subject, isNew: false }
    const { webhookUrl } = asked
    const delivery = webhookUrl === undefined ? undefined : await this.#webhooks.promise(caller.orgId, webhookUrl)
    const createdAt = timestamp()
    const keeps = await this.#keeps.of(caller.orgId)
    const kept = asked.kept || keeps.keep_output
    const row = toRow(spec, { ...asked, subject, kept, keepsOutput: keeps.keep_output }, owner, createdAt)
    await this.#allowances.admit(row)
    this.#inFlight.add(row.id)
    const extras = { ...(keeps.keep_code && { code: asked.input.code }), delivery }
    const existing = await this.#write(row, asked.idempotency, extras)
    if (existing) return { existing }
    try {
      await requireLiveKey(this.#store, spec)
      const thread = asked.thread && (await this.#threads.lock(spec, asked.thread, subject))
      // While the code runs: the disk takes longer than the run.
      const durable = isNew ? this.#store.sync().catch((error) => this.recovery.retryLater(error)) : undefined
      this.endings.changes.add(row, 'began')
      return { spec: { ...spec, ...(thread && { thread }) }, createdAt, kept, durable }
    } catch (error) {
      const discarded = this.discard(spec.runId)
      await discarded.catch((unwritten: unknown) => this.recovery.retryLater(unwritten))
      throw error
    }
  }

  /** Writes the row. @returns the existing record of the same idempotency key; in this case nothing was written. */
  async #write(
    row: NewRunRow,
    record: IdempotencyRecord | undefined,
    extras: RunExtras,
  ): Promise<IdempotencyRow | undefined> {
    let wrote = false
    try {
      if (record) {
        const existing = await this.#store.runs.beginOnce(row, toIdempotencyRow(row, record), extras)
        if (existing) return existing
      } else await this.#store.runs.begin(row, extras)
      wrote = true
      return undefined
    } finally {
      if (!wrote) this.#leave(row.id, 'never began')
    }
  }

  /**
   * Writes the ending of a run, and acknowledges the run in the background. Never rejects: if the write fails, the caller
   * still receives the result, and recovery writes it later, since the runner keeps every run until it is acknowledged.
   * @returns the result, with the duration of the write.
   */
  async finish(runId: string, result: RunResult, output?: KeptOutput): Promise<FinishedRun> {
    try {
      const { recordMs, completedAt } = await this.#record(runId, result.ending, result, output)
      void this.#unlessGone(this.#runner.acknowledge(runId))
      return { result: { ...result, timings: { ...result.timings, recordMs } }, completedAt }
    } catch (error) {
      this.recovery.retryLater(error)
      return { result, completedAt: timestamp() }
    } finally {
      await this.#threads.free(runId)
      this.#leave(runId, result.durationMs)
    }
  }

  /** Writes an ending, and counts it if it is the first. @returns the time of the ending and the duration of the write. */
  async #record(runId: string, ending: Ending, result: RunResult | null, output?: KeptOutput) {
    const completedAt = timestamp()
    const startedMs = monotonicMs()
    const run = await this.#store.runs.finish(runId, completedAt, ending, result, output, steadyTimestamp())
    const recordMs = monotonicMs() - startedMs
    this.endings.announce(runId)
    if (run) reportEnding(this.#reports, run, ending, result, recordMs)
    return { recordMs, completedAt }
  }

  /** Stops counting a run that has ended or is no longer followed. */
  #leave(runId: string, ranMs: number | 'never began'): void {
    this.#inFlight.delete(runId)
    if (ranMs === 'never began') this.#allowances.withdraw(runId)
    else this.#allowances.release(runId, ranMs)
  }

  /**
   * Deletes the rows of a run that was refused and never executed. A repeat with its idempotency key begins a new run; a
   * call that waits for this run finds no row.
   */
  async discard(runId: string): Promise<void> {
    try {
      await this.#store.runs.discard(runId)
      this.endings.announce(runId)
    } finally {
      await this.#threads.free(runId)
      this.#leave(runId, 'never began')
    }
  }

  /** Writes the ending of a run that was never executed and has no result. @returns the time of the ending. */
  async close(runId: string, ending: Ending): Promise<string> {
    try {
      await this.#store.runs.deleteIdempotencyRecord(runId)
      // The caller receives a refusal. Only a run that was cancelled before it began has an ending to deliver.
      if (ending.kind === 'failed') await this.#store.deliveries.drop(runId)
      return (await this.#record(runId, ending, null)).completedAt
    } finally {
      await this.#threads.free(runId)
      this.#leave(runId, 0)
    }
  }

  /**
   * Cancels a run of the caller's org.
   * @throws Refusal `run_unknown` (also for a run of another org), `run_finished`.
   */
  async cancel(caller: Caller, runId: string): Promise<void> {
    const row = await this.#own(caller, runId)
    if (row.finishedAt !== null) throw new Refusal('run_finished', { runId })
    await this.#runner.cancel(runId, 'cancelled')
  }

  /**
   * Lets a run of the caller's org outlive this process; does nothing to a run that has ended.
   * @throws Refusal `run_unknown` (also for a run of another org).
   */
  async detach(caller: Caller, runId: string): Promise<void> {
    if ((await this.#own(caller, runId)).finishedAt !== null) return
    await this.#runner.outlive(runId)
    await this.#store.sync()
  }

  async #own({ orgId }: Caller, runId: string): Promise<RunRow> {
    const row = await this.#store.runs.get(runId)
    if (row === undefined || row.orgId !== orgId) throw new Refusal('run_unknown', { runId })
    return row
  }

  /** Asks the runner to end a run; the ending arrives with the events of the run. Never rejects. */
  requestCancel(runId: string, cause: CancelCause): Promise<void> {
    return this.#unlessGone(this.#runner.cancel(runId, cause))
  }

  /** Takes over a run whose client disconnected: cancels it unless it is detached, and follows it to its end. */
  abandon(run: BegunRun, seenSeq: number): void {
    if (!this.#inFlight.has(run.spec.runId)) return
    if (!run.spec.detached) void this.requestCancel(run.spec.runId, 'cancelled')
    void this.#follow(run.spec.runId, seenSeq, run.kept ? run.spec.limits.outputSoftBytes : 0)
  }

  #recoverable(): RecoverableRuns {
    return {
      isFollowed: (runId) => this.#inFlight.has(runId),
      adopt: (row) => {
        this.#allowances.adopt(row)
        this.#adopt(row.id, row.kept)
      },
      dismiss: (runId) => this.#adopt(runId, false),
      interrupt: async (row) => {
        await this.#record(row.id, { kind: 'failed', reason: 'interrupted' }, null)
        await this.#threads.free(row.id)
      },
      requestCancel: (runId, cause) => this.requestCancel(runId, cause),
      freeThreads: () => this.#threads.freeEnded(),
    }
  }

  /**
   * Refuses further runs and stops recovery. `shutdown` waits for the runs in flight and ends the remaining ones; `leave`
   * leaves them to the runner and the next front.
   * @param graceMs time for which runs can continue before they are ended.
   */
  async stop(what: 'shutdown' | 'leave', graceMs: number): Promise<void> {
    this.#closing = true
    await this.recovery.stop()
    if (what === 'shutdown') await this.#endAll(graceMs)
    await this.#threads.stop()
    await this.#refused.stop()
  }

  async #endAll(graceMs: number): Promise<void> {
    if (!(await this.#inFlight.emptyWithin(graceMs))) {
      await Promise.all(this.#inFlight.runIds.map((runId) => this.requestCancel(runId, 'shutdown')))
      await this.#inFlight.emptyWithin(endingMs)
    }
  }

  #adopt(runId: string, kept: boolean): void {
    this.#inFlight.add(runId)
    this.#threads.adopt(runId)
    void this.#follow(runId, 0, kept ? adoptedKeptBytes : 0)
  }

  /**
   * Reads a run to its end to write its row. Never rejects.
   * @param keptBytes limit for the stored output; 0 to store none and to read the run from `afterSeq` on.
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
      // Recovery closes a run that the runner no longer knows.
      this.#leave(runId, 0)
      this.recovery.retryLater(error)
    }
  }

  /** Awaits a request to the runner, and ignores a refusal: recovery repeats the request when a runner connects. */
  async #unlessGone(request: Promise<void>): Promise<void> {
    try {
      await request
    } catch (error) {
      if (!(error instanceof Refusal)) fault(error, this.#log)
    }
  }
}

/** Limit for the stored output of a run of an earlier front. The runner also enforces the limit of the profile. */
const adoptedKeptBytes = 1024 * 1024
