import { Refusal } from '../../base/errors.ts'
import { type Limits, unmeasured } from '../../base/run.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { IdempotencyRow, RunRow, Store } from '../../store/store.ts'
import type { ExecuteEvent } from './execute-event.ts'
import { OutputFold } from './output-fold.ts'
import type { CheckedRequest } from './request.ts'
import type { RunEndings } from './run-endings.ts'

/**
 * Answers a repeated request: follows the run of the first request to its end, then yields its recorded result. The code
 * is never executed again. When `signal` aborts, the run is cancelled. A queued run yields `accepted` only when it starts,
 * since it can still be refused.
 * @throws Refusal `idempotency_conflict` if the first request was different, `unavailable` if it was refused.
 */
export async function* replayIdempotent(
  { store, runner, endings }: { store: Store; runner: Runner; endings: RunEndings },
  { runId, requestHash, idempotencyKey }: IdempotencyRow,
  asked: CheckedRequest,
  limits: Limits,
  signal: AbortSignal,
): AsyncGenerator<ExecuteEvent, void, undefined> {
  if (requestHash !== asked.idempotency?.requestHash) throw new Refusal('idempotency_conflict', { idempotencyKey })
  const fold = new OutputFold(limits.outputSoftBytes)
  const cancel = () => void runner.cancel(runId, 'cancelled').catch(() => {})
  signal.addEventListener('abort', cancel, { once: true })
  const watch = endings.watch(runId)
  try {
    for (let isAccepted = false; ; ) {
      const row = await store.runs.get(runId)
      if (row === undefined) throw new Refusal('unavailable', { reason: 'the call that this one repeats was refused' })
      const { createdAt, deliveryMode, kept } = row
      const accepted = { runId, createdAt, deliveryMode, limits, kept, outputSoFar: () => fold.kept() }
      if (row.finishedAt !== null) {
        if (!isAccepted) yield { kind: 'accepted', ...accepted }
        yield await toRecorded(store, row, limits)
        return
      }
      if (!isAccepted) {
        for await (const event of follow(runner, runId, fold)) {
          if (!isAccepted) yield { kind: 'accepted', ...accepted }
          isAccepted = true
          yield event
        }
      }
      await watch.changed()
    }
  } finally {
    watch.stop()
    signal.removeEventListener('abort', cancel)
  }
}

/** Yields the output of a run from its beginning, without its ending, which the caller reads from the row. */
async function* follow(runner: Runner, runId: string, fold: OutputFold): AsyncGenerator<ExecuteEvent, void, undefined> {
  try {
    for await (const event of runner.attach(runId, 0)) {
      if (event.kind === 'ended') return
      if (event.kind !== 'running') fold.add(event)
      yield event
    }
  } catch (error) {
    // The run can end or be lost before it is attached to: the caller reads its row.
    if (!(error instanceof Refusal)) throw error
  }
}

async function toRecorded(store: Store, row: RunRow, limits: Limits): Promise<ExecuteEvent> {
  const result = row.result ?? unmeasured(limits, row.ending ?? { kind: 'failed', reason: 'interrupted' })
  const output = (await store.runs.output(row.id)) ?? null
  return { kind: 'recorded', result, output, completedAt: row.finishedAt ?? row.createdAt }
}
