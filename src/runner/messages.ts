/**
 * The run protocol between front and runner. Not tied to a connection: a run belongs to the runner, and any
 * front of this instance may attach to it, replay it and follow it.
 *
 * On the socket each message is a frame: u32 total bytes, u32 header bytes (both big-endian), JSON header, payload.
 */
import type { Details, RefusalCode } from '../base/errors.ts'
import type { CancelCause, RunEvent, RunInput, RunResult, RunSpec, Stream } from '../base/run.ts'

/** Both sides must say the same; a front refuses a runner of another version and the other way round. */
export const protocolVersion = 1

/** No message may be larger: code and standard input together stay below it. */
export const maxMessageBytes = 8 * 1024 * 1024

export interface RunSummary {
  runId: string
  orgId: string
  keyId: string
  detached: boolean
  state: 'queued' | 'preparing' | 'running' | 'ended'
}

/** From the front. `request` pairs an answer with its question. */
export type ToRunner =
  | { type: 'hello'; version: number }
  /** Idempotent: a run id that is known already is answered `ok` and not started again. Payload: code, then stdin. */
  | { type: 'start'; request: number; spec: RunSpec; codeBytes: number; stdinBytes?: number }
  /** Replays what was kept after `afterSeq` and follows until the end. */
  | { type: 'attach'; request: number; runId: string; afterSeq: number; windowBytes: number }
  /** The reader has room for so many more output bytes; the runner sends no output beyond what was granted. */
  | { type: 'more'; attachment: number; bytes: number }
  | { type: 'detach'; attachment: number }
  | { type: 'cancel'; request: number; runId: string; cause: CancelCause }
  | { type: 'list'; request: number }
  /** The ending is safe with the front; the runner may forget the run. */
  | { type: 'acknowledge'; request: number; runId: string }
  /** The slots of a key end: idle ones now, busy ones with their run. */
  | { type: 'retire_key'; request: number; keyId: string }

/** From the runner. */
export type FromRunner =
  | { type: 'hello'; version: number; runnerId: string; epoch: number }
  | { type: 'ready'; ready: boolean; reason: string }
  | { type: 'ok'; request: number }
  | { type: 'runs'; request: number; runs: RunSummary[] }
  | { type: 'refused'; request: number; code: RefusalCode; details: Details }
  /** Events of an attachment carry the number of the request that made it. */
  | { type: 'running'; request: number; seq: number }
  | { type: 'output'; request: number; seq: number; stream: Stream }
  | { type: 'gap'; request: number; seq: number; stream: Stream; bytes: number }
  | { type: 'ended'; request: number; seq: number; result: RunResult }

/** What core needs of a runner, wherever it runs. */
export interface Runner {
  /** `runnerId` and `epoch` of the runner that is connected now; an epoch names one life of a runner process. */
  readonly identity: { runnerId: string; epoch: number } | undefined
  /** Whether a run could start now, and if not, why. */
  readonly readiness: { ready: true } | { ready: false; reason: string }

  /**
   * Starts a run; idempotent by `runId`. Resolves when the runner has taken it (queued or more).
   * @throws Refusal `queue_full`, `unavailable`, or whatever the runner refuses.
   */
  start(spec: RunSpec, input: RunInput): Promise<void>

  /**
   * Replays after `afterSeq` (0: everything) and follows until `ended`, which is always the last event.
   * Ending the iteration early detaches and leaves the run alone.
   * When the runner dies, the last event is `ended` as `failed {runner_lost}`.
   * @throws Refusal `run_unknown`.
   */
  attach(runId: string, afterSeq: number): AsyncGenerator<RunEvent, void, undefined>

  /**
   * Ends a run; resolves when the order was taken. Its ending arrives through `attach`.
   * @throws Refusal `run_unknown`, `run_finished`.
   */
  cancel(runId: string, cause: CancelCause): Promise<void>

  list(): Promise<RunSummary[]>

  /** Lets the runner forget an ended run. */
  acknowledge(runId: string): Promise<void>

  /** Ends the slots of a key; runs in them end as `cancelled`. */
  retireKey(keyId: string): Promise<void>
}
