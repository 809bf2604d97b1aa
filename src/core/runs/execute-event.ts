import type { DeliveryMode } from '../../base/execution-status.ts'
import type { Limits, RunEvent, RunResult } from '../../base/run.ts'
import type { KeptOutput } from '../../store/store.ts'

/** The first event: the run has a place. */
export interface AcceptedEvent {
  kind: 'accepted'
  runId: string
  /** ISO 8601, UTC. */
  createdAt: string
  deliveryMode: DeliveryMode
  limits: Limits
  /** Returns what the run has printed so far; valid until the next event. */
  outputSoFar: () => KeptOutput
}

/** The last event of a run that is followed to its end, once its row has its ending. */
export interface EndedEvent {
  kind: 'ended'
  seq: number
  result: RunResult
  output: KeptOutput
  /** As its row has it: ISO 8601, UTC. */
  completedAt: string
}

/** The last event of a request that repeats an earlier one: what that one recorded. */
export interface RecordedEvent {
  kind: 'recorded'
  result: RunResult
  /** `null` when it was not kept, or no longer is. */
  output: KeptOutput | null
  completedAt: string
}

/** What `execute` yields: `accepted` first, then the events of the run, then `ended` or `recorded`. */
export type ExecuteEvent = AcceptedEvent | Exclude<RunEvent, { kind: 'ended' }> | EndedEvent | RecordedEvent
