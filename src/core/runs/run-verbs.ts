import { InTurn } from '../../base/in-turn.ts'
import type { RunEvent } from '../../base/run.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { RunRow, Store } from '../../store/store.ts'
import type { Guarded, Rights } from '../access/rights.ts'
import type { Caller } from '../caller.ts'
import type { Page } from '../paging.ts'
import { execute } from './execute.ts'
import type { ExecuteEvent } from './execute-event.ts'
import { type Execution, waitForExecution } from './executions.ts'
import { followRun, type HistoryQuery, type RecordedRun, recordedRun, runsOf } from './history.ts'
import type { ExecuteRequest } from './request.ts'
import type { Runs } from './runs.ts'

/** The operations on runs. */
export interface RunVerbs {
  /** Runs code; see `execute`. */
  readonly execute: Guarded<
    (caller: Caller, request: ExecuteRequest, signal: AbortSignal) => AsyncGenerator<ExecuteEvent, void, undefined>
  >

  /**
   * Detaches a run, so that it continues when this process ends. Its client can query it later.
   * @throws Refusal `run_unknown` (also for a run of another organization).
   */
  readonly detach: Guarded<(caller: Caller, runId: string) => Promise<void>>

  /** Cancels a run. @throws Refusal `run_unknown` (also for a run of another organization), `run_finished`. */
  readonly cancel: Guarded<(caller: Caller, runId: string) => Promise<void>>

  /**
   * Returns a run as it is now, or once it has ended; see `waitForExecution`.
   * @throws Refusal `run_unknown` (also for a run of another organization).
   */
  readonly waitForExecution: Guarded<
    (caller: Caller, runId: string, waiting: { waitMs: number; signal: AbortSignal }) => Promise<Execution>
  >

  /**
   * Returns a run with all of its stored data.
   * @throws Refusal `run_unknown` (also for a run of another organization).
   */
  readonly execution: Guarded<(caller: Caller, runId: string) => Promise<RecordedRun>>

  /** Lists the runs of the caller's organization, newest first. @throws Refusal `invalid_argument`. */
  readonly executions: Guarded<(caller: Caller, query: HistoryQuery) => Promise<Page<RunRow>>>

  /** Yields the events of a run from its beginning to its end; see `followRun`. */
  readonly follow: Guarded<
    (caller: Caller, runId: string, signal: AbortSignal) => AsyncGenerator<RunEvent, void, undefined>
  >
}

/** The right to read a run: a capability, or having started the run with the same key. */
const toRead = { capability: 'executions.read', orOwnRun: true } as const
const toCancel = { capability: 'executions.cancel', orOwnRun: true } as const

/** Builds the operations on runs. */
export function runVerbs(rights: Rights, store: Store, runner: Runner, runs: Runs): RunVerbs {
  const deps = { store, runner, endings: runs.endings }
  // One search per organization at a time: all of them share one thread.
  const searches = new InTurn()
  return {
    execute: rights.stream('execute', (caller, request, signal) =>
      execute(store, runs, runner, caller, request, signal),
    ),
    detach: rights.verb(toCancel, (caller, runId) => runs.detach(caller, runId)),
    cancel: rights.verb(toCancel, (caller, runId) => runs.cancel(caller, runId)),
    waitForExecution: rights.verb(toRead, (caller, runId, waiting) => waitForExecution(deps, caller, runId, waiting)),
    execution: rights.verb(toRead, (caller, runId) => recordedRun(store, caller, runId)),
    executions: rights.verb('executions.read', (caller, query) =>
      searches.run(caller.orgId, () => runsOf(store, caller, query)),
    ),
    follow: rights.stream(toRead, (caller, runId, signal) => followRun(deps, caller, runId, signal)),
  }
}
