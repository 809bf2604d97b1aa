import { Refusal } from '../../base/errors.ts'
import { type Ending, type RunResult, unmeasured } from '../../base/run.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import type { ExecuteEvent } from './execute-event.ts'
import { replayIdempotent } from './idempotent-replay.ts'
import { OutputFold } from './output-fold.ts'
import { check, type ExecuteRequest } from './request.ts'
import type { BegunRun, FinishedRun } from './run-rows.ts'
import type { Runs } from './runs.ts'
import { bytesOf } from './transcript.ts'

/**
 * Runs code for a caller. The row of the run is written before it starts, and always gets an ending. When `signal` aborts,
 * the run is cancelled, and `ended` still follows. When the iteration is ended early, a detached run continues and any other
 * run is cancelled; both are followed to their end in the background.
 *
 * @throws Refusal before the first event, if the request is invalid or the run is refused.
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
  if ('existing' in run) {
    const limits = { ...caller.profile.limits, timeoutMs: asked.timeoutMs }
    yield* replayIdempotent({ store, runner, endings: runs.endings }, run.existing, asked, limits, signal)
    return
  }
  const { runId, limits } = run.spec
  const fold = new OutputFold(limits.outputSoftBytes)
  const cancel = () => void runs.requestCancel(runId, 'cancelled')
  signal.addEventListener('abort', cancel, { once: true })
  let seenSeq = 0
  let ended = false
  try {
    const refused = await start({ runs, runner, caller }, run, asked.input, signal)
    const { createdAt, kept } = run
    const { deliveryMode } = asked
    yield { kind: 'accepted', runId, createdAt, deliveryMode, limits, kept, outputSoFar: () => fold.kept() }
    if (refused) {
      ended = true
      yield { kind: 'ended', seq: 1, ...refused, output: fold.kept(), isKept: kept }
      return
    }
    let result: RunResult | undefined
    try {
      for await (const event of runner.attach(runId, 0)) {
        seenSeq = event.seq
        if (event.kind === 'ended') {
          result = event.result
          break
        }
        if (event.kind !== 'running') fold.add(event)
        yield event
      }
    } catch (error) {
      // The runner can be lost before the run is attached to.
      if (!(error instanceof Refusal)) throw error
      result = unmeasured(limits, { kind: 'failed', reason: 'runner_lost' })
      seenSeq += 1
    }
    if (!result) return
    ended = true
    const output = fold.kept()
    const isKept =
      run.kept ||
      (asked.keptWithImages && output.images.length > 0) ||
      bytesOf(output.stdout) + bytesOf(output.stderr) > asked.keptBeyondBytes
    // If the runner was lost, the result does not contain the limits.
    const finished = await runs.finish(runId, { ...result, limits }, isKept ? output : undefined)
    await run.durable
    yield { kind: 'ended', seq: seenSeq, ...finished, output, isKept }
  } finally {
    signal.removeEventListener('abort', cancel)
    if (!ended) runs.abandon(run, seenSeq)
  }
}

/**
 * Starts a run on the runner.
 * @returns the result of a run that was cancelled before it started, otherwise `undefined`.
 * @throws Refusal of the runner. By then the row is deleted, or has an ending if the code can have been executed.
 */
async function start(
  { runs, runner, caller }: { runs: Runs; runner: Runner; caller: Caller },
  run: BegunRun,
  input: Parameters<Runner['start']>[1],
  signal: AbortSignal,
): Promise<FinishedRun | undefined> {
  const { runId, limits } = run.spec
  try {
    const started = runner.start(run.spec, input)
    // A cancellation that arrived before the start had no effect. This one follows the start on the same connection.
    if (signal.aborted) void runs.requestCancel(runId, 'cancelled')
    await started
    return undefined
  } catch (error) {
    // Before its start, a run can be ended only by its caller or by the revocation of its key.
    const cancelled = error instanceof Refusal && error.code === 'run_finished'
    if (error instanceof Refusal && !cancelled) runs.countRefused(caller, error)
    if (neverStarted(runner, error) && !cancelled) {
      await runs.discard(runId)
      throw error
    }
    const ending: Ending = cancelled ? { kind: 'cancelled' } : { kind: 'failed', reason: 'not_started' }
    const completedAt = await runs.close(runId, ending)
    if (!cancelled) throw error
    return { result: unmeasured(limits, ending), completedAt }
  }
}

/** Returns whether the runner refused the run. If the connection was lost instead, the code can have been executed. */
const neverStarted = ({ readiness }: Runner, error: unknown): boolean =>
  error instanceof Refusal && (error.code !== 'unavailable' || readiness.ready)
