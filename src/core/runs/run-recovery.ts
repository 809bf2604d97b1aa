import { BackgroundJob } from '../../base/background-job.ts'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { CancelCause } from '../../base/run.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Runner, RunSummary } from '../../runner/protocol/messages.ts'
import type { RunRow, Store } from '../../store/store.ts'

/** How soon a new runner process is noticed; only a property is read, so it costs nothing. */
const watchIntervalMs = 100
/** Pause after a failed attempt; long enough that a broken database does not fill the log. */
const retryMs = 2_000

/** What recovery does with runs. */
export interface RecoverableRuns {
  isFollowed(runId: string): boolean
  /** Follows a run that an earlier front began. */
  adopt(row: RunRow): void
  /** Follows a run whose row is complete or missing, so that the runner forgets it. */
  dismiss(runId: string): void
  /** Closes the row of a run that no runner has. */
  interrupt(row: RunRow): Promise<void>
  requestCancel(runId: string, cause: CancelCause): Promise<void>
  /** Frees the threads of runs that have ended. */
  freeThreads(): Promise<void>
}

/**
 * Gives an ending to every row that has none and that this process does not follow, each time a new runner process
 * appears. A run that the runner still has is followed; any other is closed as `interrupted`.
 */
export class RunRecovery {
  readonly #runs: RecoverableRuns
  readonly #store: Store
  readonly #runner: Runner
  readonly #log: Log
  readonly #watch: BackgroundJob
  /** The runner process after which rows were last recovered. */
  #recoveredLife: string | undefined
  /** The runner process after which every row got its ending. */
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

  /** Whether nothing is left to recover from before the connected runner process appeared. */
  get isDone(): boolean {
    return this.#life === undefined || this.#life === this.#settledLife
  }

  get #life(): string | undefined {
    const { identity } = this.#runner
    return identity && `${identity.runnerId} ${identity.epoch}`
  }

  /** Recovers now if a runner is connected, and again whenever a new runner process appears. */
  async start(): Promise<void> {
    await this.#watch.run()
  }

  /** Recovers now, also from the runner process that was recovered from before. */
  recover(): Promise<void> {
    this.#recoveredLife = undefined
    return this.#watch.run()
  }

  /** Recovers again soon, since a row could not get its ending now. @param error logged unless it is a refusal. */
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

  /** The client of a run that is not detached left with the front that died, so the run is cancelled. */
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

  /** The runner keeps a run that nothing follows: its row is complete, or was never written here. */
  async #dismiss(run: RunSummary): Promise<void> {
    const row = await this.#store.runs.get(run.runId)
    if (row !== undefined && row.finishedAt === null) return
    if (run.state !== 'ended') await this.#runs.requestCancel(run.runId, 'cancelled')
    this.#runs.dismiss(run.runId)
  }
}
