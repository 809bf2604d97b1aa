import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Ending, RunEvent, RunResult } from '../../base/run.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { KeptOutput, RunRow, Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { OutputFold } from './output-fold.ts'

/** A run as its caller's org may see it at any time. */
export interface Execution {
  runId: string
  createdAt: string
  /** `null` while it goes on. */
  ending: Ending | null
  /** `null` while it goes on, and where nothing could be measured. */
  result: RunResult | null
  /** `null` where it ended and what it printed was not kept, or is no longer. */
  output: KeptOutput | null
}

/** A runner replays what it holds without a pause; after one this long, everything was told. */
const quietMs = 60
/** Of a run that prints without such a pause, what it said until then is told. */
const replayMs = 1_000
/** From the moment when the runner forgot a run until its row says how it ended. */
const settlingMs = 3_000

/**
 * Looks at a run, and waits for its end if asked to.
 * @param waitMs how long to wait for the end; 0 looks at what is there.
 * @param signal ends the waiting, not the run.
 * @throws Refusal `run_unknown` (also for a run of another org).
 */
export async function look(
  store: Store,
  runner: Runner,
  caller: Caller,
  runId: string,
  { waitMs, signal }: { waitMs: number; signal: AbortSignal },
): Promise<Execution> {
  const settledMs = monotonicMs() + settlingMs
  for (;;) {
    const row = await store.runs.get(runId)
    if (row === undefined || row.orgId !== caller.orgId) throw new Refusal('run_unknown', { runId })
    if (row.finishedAt !== null) return recorded(row, (await store.runs.output(runId)) ?? null)
    try {
      return await watch(runner, caller, row, waitMs, signal)
    } catch (error) {
      // It ended between the two looks, or its runner is gone: its row will say so.
      if (!(error instanceof Refusal) || monotonicMs() > settledMs) throw error
      await sleep(50)
    }
  }
}

const recorded = ({ id, createdAt, ending, result }: RunRow, output: KeptOutput | null): Execution => ({
  runId: id,
  createdAt,
  ending,
  result,
  output,
})

async function watch(
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
      const told = await within(Math.max(untilMs - monotonicMs(), quietMs), signal, next)
      if (told === undefined || told.done) break
      next = undefined
      const event = told.value
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
    void events.return(undefined).catch(() => {})
  }
}

/** @returns what comes, or nothing when it takes longer or `signal` aborts; no timer is left behind either way. */
async function within<T>(ms: number, signal: AbortSignal, coming: Promise<T>): Promise<T | undefined> {
  const came = new AbortController()
  const options = { signal: AbortSignal.any([signal, came.signal]), ref: false }
  try {
    return await Promise.race([coming, sleep(ms, undefined, options).catch(() => undefined)])
  } finally {
    came.abort()
  }
}
