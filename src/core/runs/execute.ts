import { Refusal } from '../../base/errors.ts'
import { type Ending, type Limits, type RunEvent, type RunResult, type RunSpec, unmeasured } from '../../base/run.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { Fold, type Transcript } from './fold.ts'
import { recall } from './idempotent-replay.ts'
import { check, type ExecuteRequest } from './request.ts'
import type { BegunRun } from './run-rows.ts'
import type { Runs } from './runs.ts'

/**
 * First comes `accepted`, once the run has a place; last comes `ended`, when its row is written. Of a run that was
 * asked for before the last is `recorded`: all that it printed, and how it ended.
 */
export type ExecuteEvent =
  | { kind: 'accepted'; runId: string; createdAt: string; limits: Limits }
  | { kind: 'recorded'; transcript: Transcript }
  | RunEvent

/**
 * Runs code for a caller. Its row is written before it starts and gets its ending whatever happens: when `signal`
 * aborts the run is cancelled and its ending still comes; when the iteration is ended early, a detached run goes on
 * and any other is cancelled, and either is followed to its end in the background.
 *
 * @throws Refusal before the first event, when the request breaks a rule or the run finds no place.
 */
export async function* execute(
  store: Store,
  runs: Runs,
  runner: Runner,
  caller: Caller,
  request: ExecuteRequest,
  signal: AbortSignal,
): AsyncGenerator<ExecuteEvent, void, undefined> {
  const asked = check(caller, request)
  const run = await runs.begin(caller, asked)
  if ('taken' in run) {
    const limits = { ...caller.profile.limits, timeoutMs: asked.timeoutMs }
    yield* recall(store, runner, run.taken, asked, limits, signal)
    return
  }
  const fold = run.kept ? new Fold() : undefined
  const cancel = () => void runs.order(run.spec.runId, 'cancelled')
  signal.addEventListener('abort', cancel, { once: true })
  let seenSeq = 0
  let ended = false
  try {
    const refused = await start(runs, runner, run, asked.input, signal)
    const { runId, limits } = run.spec
    const accepted: ExecuteEvent = { kind: 'accepted', runId, createdAt: run.createdAt, limits }
    fold?.add(accepted)
    yield accepted
    if (refused) {
      ended = true
      yield { kind: 'ended', seq: 1, result: refused }
      return
    }
    for await (const event of follow(runner, run.spec)) {
      seenSeq = event.seq
      fold?.add(event)
      if (event.kind !== 'ended') yield event
      else {
        ended = true
        yield { ...event, result: await runs.finish(run.spec.runId, event.result, fold?.keep()) }
      }
    }
  } finally {
    signal.removeEventListener('abort', cancel)
    if (!ended) runs.abandon(run, seenSeq)
  }
}

/**
 * Hands the run to the runner.
 * @returns the result of a run that was cancelled before it found a place, otherwise nothing.
 * @throws Refusal of the runner; the row is closed by then.
 */
async function start(
  runs: Runs,
  runner: Runner,
  run: BegunRun,
  input: Parameters<Runner['start']>[1],
  signal: AbortSignal,
): Promise<RunResult | undefined> {
  try {
    const started = runner.start(run.spec, input)
    // An order given before the runner knew the run was lost; this one follows its start on the same connection.
    if (signal.aborted) void runs.order(run.spec.runId, 'cancelled')
    await started
    return undefined
  } catch (error) {
    // Nothing else finishes a run before it starts; its caller may have asked for it, or its key was revoked.
    const cancelled = error instanceof Refusal && error.code === 'run_finished'
    const ending: Ending = cancelled ? { kind: 'cancelled' } : { kind: 'failed', reason: 'not_started' }
    await runs.close(run.spec.runId, ending)
    if (!cancelled) throw error
    return unmeasured(run.spec.limits, ending)
  }
}

/** The events of a run that was started, an ending among them in any case: it may be lost before it was attached to. */
async function* follow(runner: Runner, { runId, limits }: RunSpec): AsyncGenerator<RunEvent, void, undefined> {
  let seq = 0
  try {
    for await (const event of runner.attach(runId, 0)) {
      seq = event.seq
      // Where the runner was lost its limits are not known; here they are.
      yield event.kind === 'ended' ? { ...event, result: { ...event.result, limits } } : event
    }
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    yield { kind: 'ended', seq: seq + 1, result: unmeasured(limits, { kind: 'failed', reason: 'runner_lost' }) }
  }
}
