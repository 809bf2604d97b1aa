import { BackgroundJob } from '../../base/background-job.ts'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { CancelCause } from '../../base/run.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Runner, RunSummary } from '../../runner/protocol/messages.ts'
import type { RunRow, Store } from '../../store/store.ts'

/** Interval for detecting a new runner process. A check only reads a property. */
const watchIntervalMs = 100
/** Pause after a failed attempt, so that a broken database does not fill the log. */
const retryMs = 2_000

/** The operations on runs that recovery uses. */
export interface RecoverableRuns {
  isFollowed(runId: string): boolean
  /** Follows a run of an earlier front. */
  adopt(row: RunRow): void
  /** Acknowledges a run whose row is complete or missing, so that the runner deletes it. */
  dismiss(runId: string): void
  /** Writes the ending of a run that no runner has. */
  interrupt(row: RunRow): Promise<void>
  requestCancel(runId: string, cause: CancelCause): Promise<void>
  /** Frees the threads of runs that have ended. */
  freeThreads(): Promise<void>
}

/**
 * Recovers runs each time a new runner process connects: gives an ending to every row that has none and that this process
 * does not follow. Runs that the runner still has are followed; all others end as `interrupted`.
 */
export class RunRecovery {
  readonly #runs: RecoverableRuns
  readonly #store: Store
  readonly #runner: Runner
  readonly #log: Log
  readonly #watch: BackgroundJob
  /** The runner process for which the last recovery was started. */
  #recoveredLife: string | undefined
  /** The runner process for which the last recovery was completed. */
  #settledLife: string | undefined
  #retryAtMs = Number.POSITIVE_INFINITY

  constructor(runs: RecoverableRuns, { store, runner, log }: { store: Store; runner: Runner; log: Log }) {
    this.#runs = runs
    this.#store = store
    this.#runner = runner
    this.#log = log
    this.#watch = new BackgroundJob({
      everyMs: watchIntervalMs,
      work: () => this.#recoverOnce(),
      onFault: (error) => fault(error, log),
    })
  }

  /** Whether the recovery for the connected runner process is complete; `true` if none is connected. */
  get isDone(): boolean {
    return this.#life === undefined || this.#life === this.#settledLife
  }

  get #life(): string | undefined {
    const { identity } = this.#runner
    return identity && `${identity.runnerId} ${identity.epoch}`
  }

  /** Recovers now if a runner is connected, and again whenever a new runner process connects. */
  async start(): Promise<void> {
    await this.#watch.run()
  }

  /** Recovers now, even if the recovery for the connected runner process is complete. */
  recover(): Promise<void> {
    this.#recoveredLife = undefined
    return this.#watch.run()
  }

  /** Repeats the recovery soon, since an ending could not be written. @param error logged unless it is a refusal. */
  retryLater(error: unknown): void {
    this.#retryAtMs = monotonicMs() + retryMs
    if (!(error instanceof Refusal)) fault(error, this.#log)
  }

  stop(): Promise<void> {
    return this.#watch.stop()
  }

  async #recoverOnce(): Promise<void> {
    const life = this.#life
    if (life === this.#recoveredLife && monotonicMs() < this.#retryAtMs) return
    this.#recoveredLife = life
    this.#retryAtMs = Number.POSITIVE_INFINITY
    if (life === undefined) return
    try {
      await this.#settle()
      this.#settledLife = life
    } catch (error) {
      this.retryLater(error)
    }
  }

  /** Recovers all rows. Cancels runs that are not detached, since their client was connected to the front that died. */
  async #settle(): Promise<void> {
    const kept = new Map((await this.#runner.list()).map((run) => [run.runId, run]))
    for (const row of await this.#store.runs.unfinished()) {
      if (this.#runs.isFollowed(row.id)) continue
      const run = kept.get(row.id)
      if (!run) await this.#runs.interrupt(row)
      else {
        if (!run.detached && run.state !== 'ended') await this.#runs.requestCancel(run.runId, 'cancelled')
        this.#runs.adopt(row)
      }
    }
    for (const run of kept.values()) if (!this.#runs.isFollowed(run.runId)) await this.#dismiss(run)
    await this.#runs.freeThreads()
  }

  /** Dismisses a run of the runner that no process follows, if its row is complete or missing. */
  async #dismiss(run: RunSummary): Promise<void> {
    const row = await this.#store.runs.get(run.runId)
    if (row !== undefined && row.finishedAt === null) return
    if (run.state !== 'ended') await this.#runs.requestCancel(run.runId, 'cancelled')
    this.#runs.dismiss(run.runId)
  }
}
