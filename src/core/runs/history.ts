import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { type ExecutionStatus, executionStatuses } from '../../base/execution-status.ts'
import { type Language, languages, type RunEvent, type RunResult, unknownLimits, unmeasured } from '../../base/run.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { DeliveryRow, RunFilter } from '../../store/run-history.ts'
import type { KeptOutput, RunRow, Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { type Page, type PageRequest, searchPage } from '../paging.ts'
import { checkTime } from '../times.ts'
import { replay } from './output-order.ts'
import type { RunEndings } from './run-endings.ts'
import { nothingKept } from './transcript.ts'

/** A run as it is stored. */
export type HistoryRun = RunRow
export type Delivery = DeliveryRow

/** A run with everything that is stored of it. */
export interface RecordedRun {
  row: RunRow
  /** `null` while the run is active, and if the output is not stored or was deleted. */
  output: KeptOutput | null
  /** `null` unless the organization stores code. */
  code: string | null
  /** `null` unless the run has a webhook. */
  delivery: DeliveryRow | null
}

/** Filters of a search, as the client sent them. */
export interface HistoryQuery extends PageRequest {
  threadId?: string | undefined
  keyId?: string | undefined
  status?: string | undefined
  language?: string | undefined
  createdAfter?: string | undefined
  createdBefore?: string | undefined
  metadata?: readonly (readonly [key: string, value: string])[]
}

/** Maximum number of metadata filters: each one adds a subquery. */
const metadataFiltersMax = 8

/** Returns a run with everything that is stored of it. @throws Refusal `run_unknown` (also for a run of another org). */
export async function recordedRun(store: Store, { orgId }: Pick<Caller, 'orgId'>, runId: string): Promise<RecordedRun> {
  const row = await ownRow(store, orgId, runId)
  const isEnded = row.finishedAt !== null
  const [output, code, delivery] = await Promise.all([
    isEnded ? store.runs.output(runId) : undefined,
    store.history.code(runId),
    row.deliveryMode === 'webhook' ? store.deliveries.get(runId) : undefined,
  ])
  const text = code && new TextDecoder('utf-8', { ignoreBOM: true }).decode(code)
  return { row, output: output ?? null, code: text ?? null, delivery: delivery ?? null }
}

async function ownRow(store: Store, orgId: string, runId: string): Promise<RunRow> {
  const row = await store.runs.get(runId)
  if (row === undefined || row.orgId !== orgId) throw new Refusal('run_unknown', { runId: runId.slice(0, 128) })
  return row
}

/** Lists the runs of the caller's organization, newest first. @throws Refusal `invalid_argument`. */
export async function runsOf(
  store: Store,
  { orgId }: Pick<Caller, 'orgId'>,
  query: HistoryQuery,
): Promise<Page<RunRow>> {
  const filter = toFilter(query)
  const keyOf = ({ createdAt, id }: Pick<RunRow, 'createdAt' | 'id'>): [string, string] => [createdAt, id]
  return searchPage(query, ['9999', ''], { ofRow: keyOf, ofPosition: keyOf }, ([createdAt, id], limit) =>
    store.history.page(orgId, filter, { createdAt, id }, limit),
  )
}

function toFilter({
  threadId,
  keyId,
  status,
  language,
  createdAfter,
  createdBefore,
  metadata = [],
}: HistoryQuery): RunFilter {
  if (metadata.length > metadataFiltersMax) {
    throw new Refusal('invalid_argument', {
      field: 'metadata',
      problem: `is used ${metadata.length} times; the maximum is ${metadataFiltersMax}`,
    })
  }
  return {
    threadId,
    keyId,
    status: oneOf('status', executionStatuses, status) as ExecutionStatus | undefined,
    language: oneOf('language', languages, language) as Language | undefined,
    createdAfter: checkTime('created_after', createdAfter),
    createdBefore: checkTime('created_before', createdBefore),
    metadata,
  }
}

function oneOf(field: string, known: readonly string[], given: string | undefined): string | undefined {
  if (given === undefined || known.includes(given)) return given
  throw new Refusal('invalid_argument', { field, problem: `must be one of ${known.join(', ')}` })
}

/** Pause before a disconnected runner is queried again. It usually reconnects within 50 ms. */
const reconnectMs = 100
/** Maximum time from the last event of a run until its row is complete. After it, the ending of the event is used. */
const settlingMs = 10_000

/**
 * Yields the events of an active or ended run from its beginning to its end. Omits output that is no longer stored. Ending
 * the iteration does not affect the run.
 * @param signal ends the iteration.
 * @throws Refusal `run_unknown` (also for a run of another org), `unavailable`.
 */
export async function* followRun(
  { store, runner, endings }: { store: Store; runner: Pick<Runner, 'attach'>; endings: RunEndings },
  { orgId }: Pick<Caller, 'orgId'>,
  runId: string,
  signal: AbortSignal,
): AsyncGenerator<RunEvent, void, undefined> {
  let seq = 0
  let live: Extract<RunEvent, { kind: 'ended' }> | undefined
  let patienceMs = monotonicMs() + settlingMs
  const watch = endings.watch(runId)
  try {
    while (!signal.aborted) {
      const row = await ownRow(store, orgId, runId)
      if (row.finishedAt !== null) {
        if (seq === 0) seq = yield* replay((await store.runs.output(runId)) ?? nothingKept)
        yield { kind: 'ended', seq: live?.seq ?? seq + 1, result: resultOf(row) }
        return
      }
      let isDisconnected = false
      try {
        if (live && monotonicMs() > patienceMs) return void (yield live)
        if (live === undefined) {
          for await (const event of until(signal, runner.attach(runId, 0))) {
            if (event.kind === 'ended') live = event
            else if (event.seq <= seq) continue
            else yield event
            seq = event.seq
          }
          patienceMs = monotonicMs() + settlingMs
        }
      } catch (error) {
        // The run has ended since its row was read, or its runner is temporarily disconnected.
        if (!(error instanceof Refusal) || monotonicMs() > patienceMs) throw error
        isDisconnected = error.code === 'unavailable'
      }
      if (!signal.aborted) await watch.changed(isDisconnected ? reconnectMs : undefined)
    }
  } finally {
    watch.stop()
  }
}

/** Returns the result of a run that has ended. */
export const resultOf = ({ result, ending }: RunRow): RunResult =>
  result ?? unmeasured(unknownLimits, ending ?? { kind: 'failed', reason: 'interrupted' })

/** Yields events until a signal aborts. */
async function* until<T>(signal: AbortSignal, events: AsyncIterableIterator<T, void, undefined>) {
  const over = new Promise<undefined>((resolve) => {
    if (signal.aborted) resolve(undefined)
    else signal.addEventListener('abort', () => resolve(undefined), { once: true })
  })
  let next: Promise<IteratorResult<T, void>> | undefined
  try {
    for (;;) {
      next = events.next()
      const result = await Promise.race([next, over])
      if (result === undefined || result.done) return
      yield result.value
    }
  } finally {
    next?.catch(() => {})
    void events.return?.().catch(() => {})
  }
}
