import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Ending, RunEvent, RunResult } from '../../base/run.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { KeptOutput, RunRow, Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { OutputFold } from './output-fold.ts'
import type { RunEndings } from './run-endings.ts'

/** The current state of a run. */
export interface Execution {
  runId: string
  createdAt: string
  /** `null` while it is running. */
  ending: Ending | null
  /** `null` while it is running, and if nothing could be measured. */
  result: RunResult | null
  /** `null` if the run has ended and its output is not stored. */
  output: KeptOutput | null
}

/** Pause after which a replay is complete: a runner replays its stored output without pauses. */
const quietMs = 60
/** Maximum duration of a replay, for runs that print continuously. */
const replayMs = 1_000
/** Pause before a disconnected runner is queried again. It usually reconnects within 50 ms. */
const reconnectMs = 50
/** Maximum time from the end of a run until its row is complete. */
const settlingMs = 3_000

/**
 * Returns the state of a run, or waits for its end.
 * @param waitMs maximum time to wait for the end; 0 returns the current state.
 * @param signal ends the waiting, not the run.
 * @throws Refusal `run_unknown` (also for a run of another org).
 */
export async function waitForExecution(
  { store, runner, endings }: { store: Store; runner: Runner; endings: RunEndings },
  caller: Caller,
  runId: string,
  { waitMs, signal }: { waitMs: number; signal: AbortSignal },
): Promise<Execution> {
  const settledMs = monotonicMs() + settlingMs
  const watch = endings.watch(runId)
  try {
    for (;;) {
      const row = await store.runs.get(runId)
      if (row === undefined || row.orgId !== caller.orgId) throw new Refusal('run_unknown', { runId })
      if (row.finishedAt !== null) return recorded(row, (await store.runs.output(runId)) ?? null)
      try {
        return await follow(runner, caller, row, waitMs, signal)
      } catch (error) {
        // The run has ended since its row was read, or its runner was lost: read the row again.
        if (!(error instanceof Refusal) || monotonicMs() > settledMs) throw error
        await watch.changed(error.code === 'unavailable' ? reconnectMs : undefined)
      }
    }
  } finally {
    watch.stop()
  }
}

const recorded = ({ id, createdAt, ending, result }: RunRow, output: KeptOutput | null): Execution => ({
  runId: id,
  createdAt,
  ending,
  result,
  output,
})

async function follow(
  runner: Runner,
  { profile }: Caller,
  { id, createdAt }: RunRow,
  waitMs: number,
  signal: AbortSignal,
): Promise<Execution> {
  const fold = new OutputFold(profile.limits.outputSoftBytes)
  const events = runner.attach(id, 0)
  const untilMs = monotonicMs() + waitMs
  let next: Promise<IteratorResult<RunEvent>> | undefined
  try {
    for (;;) {
      next ??= events.next()
      const received = await within(Math.max(untilMs - monotonicMs(), quietMs), signal, next)
      if (received === undefined || received.done) break
      next = undefined
      const event = received.value
      if (event.kind === 'ended') {
        const { result } = event
        return { runId: id, createdAt, ending: result.ending, result, output: fold.kept() }
      }
      if (event.kind !== 'running') fold.add(event)
      if (monotonicMs() > untilMs + (waitMs > 0 ? 0 : replayMs)) break
    }
    return { runId: id, createdAt, ending: null, result: null, output: fold.kept() }
  } finally {
    next?.catch(() => {})
    void events.return?.().catch(() => {})
  }
}

/** Waits for a value, and clears its timer. @returns `undefined` if it takes longer than `ms` or `signal` aborts. */
async function within<T>(ms: number, signal: AbortSignal, coming: Promise<T>): Promise<T | undefined> {
  const came = new AbortController()
  const options = { signal: AbortSignal.any([signal, came.signal]), ref: false }
  try {
    return await Promise.race([coming, sleep(ms, undefined, options).catch(() => undefined)])
  } finally {
    came.abort()
  }
}
