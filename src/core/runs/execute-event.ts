import type { DeliveryMode } from '../../base/execution-status.ts'
import type { Limits, RunEvent, RunResult } from '../../base/run.ts'
import type { KeptOutput } from '../../store/store.ts'

/** The first event: the run was accepted and cannot be refused any more. */
export interface AcceptedEvent {
  kind: 'accepted'
  runId: string
  /** ISO 8601, UTC. */
  createdAt: string
  deliveryMode: DeliveryMode
  limits: Limits
  /** Whether the output is stored with the ending, whatever the run prints. */
  kept: boolean
  /** Returns the output of the run so far; valid until the next event. */
  outputSoFar: () => KeptOutput
}

/** The last event of a run that is followed to its end. Its ending is written by then. */
export interface EndedEvent {
  kind: 'ended'
  seq: number
  result: RunResult
  output: KeptOutput
  /** Whether the output is stored with the ending. */
  isKept: boolean
  /** Time of the ending as it is stored: ISO 8601, UTC. */
  completedAt: string
}

/** The last event of a request that repeats an earlier one: the recorded result. */
export interface RecordedEvent {
  kind: 'recorded'
  result: RunResult
  /** `null` if it is not stored. */
  output: KeptOutput | null
  completedAt: string
}

/** What `execute` yields: `accepted` first, then the events of the run, then `ended` or `recorded`. */
export type ExecuteEvent = AcceptedEvent | Exclude<RunEvent, { kind: 'ended' }> | EndedEvent | RecordedEvent
