import { setTimeout as sleep } from 'node:timers/promises'
import { Refusal } from '../../base/errors.ts'
import { type Limits, unmeasured } from '../../base/run.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { ClaimRow, RunRow, Store } from '../../store/store.ts'
import type { ExecuteEvent } from './execute-event.ts'
import { OutputFold } from './output-fold.ts'
import type { CheckedRequest } from './request.ts'

/** Between two looks at a row that somebody else is about to finish. */
const lookEveryMs = 100

/**
 * Answers a request that was made before: with what the run printed and how it ended, or, while it goes on, by
 * following it as the first one does. It is never executed again. When `signal` aborts the run is cancelled.
 * @throws Refusal `idempotency_conflict` when something else was asked for then.
 */
export async function* replayIdempotent(
  store: Store,
  runner: Runner,
  { runId, requestHash, idempotencyKey }: ClaimRow,
  asked: CheckedRequest,
  limits: Limits,
  signal: AbortSignal,
): AsyncGenerator<ExecuteEvent, void, undefined> {
  if (requestHash !== asked.claim?.requestHash) throw new Refusal('idempotency_conflict', { idempotencyKey })
  const fold = new OutputFold(limits.outputSoftBytes)
  const cancel = () => void runner.cancel(runId, 'cancelled').catch(() => {})
  signal.addEventListener('abort', cancel, { once: true })
  try {
    for (let told = false; ; told = true) {
      const row = await store.runs.get(runId)
      if (row === undefined) throw new Error(`the run ${runId} of a claim has no row`)
      if (!told) yield { kind: 'accepted', runId, createdAt: row.createdAt, limits, outputSoFar: () => fold.kept() }
      if (row.finishedAt !== null) {
        yield await toRecorded(store, row, limits)
        return
      }
      if (!told) yield* follow(runner, runId, fold)
      await sleep(lookEveryMs)
    }
  } finally {
    signal.removeEventListener('abort', cancel)
  }
}

/** What a run prints from its beginning; how it ended is told once that is written, as to the first who asked. */
async function* follow(runner: Runner, runId: string, fold: OutputFold): AsyncGenerator<ExecuteEvent, void, undefined> {
  try {
    for await (const event of runner.attach(runId, 0)) {
      if (event.kind === 'ended') return
      if (event.kind !== 'running') fold.add(event)
      yield event
    }
  } catch (error) {
    // It may end or be lost between two looks; its row says so next.
    if (!(error instanceof Refusal)) throw error
  }
}

async function toRecorded(store: Store, row: RunRow, limits: Limits): Promise<ExecuteEvent> {
  const result = row.result ?? unmeasured(limits, row.ending ?? { kind: 'failed', reason: 'interrupted' })
  const output = (await store.runs.output(row.id)) ?? null
  return { kind: 'recorded', result, output }
}
