/**
 * The run protocol between front and runner. Not tied to a connection: a run belongs to the runner, and any
 * front of this instance may attach to it, replay it and follow it.
 *
 * On the socket each message is a frame: u32 total bytes, u32 header bytes (both big-endian), JSON header, payload.
 */
import type { Details, RefusalCode } from '../../base/errors.ts'
import type { CancelCause, ImageType, Quota, RunEvent, RunInput, RunResult, RunSpec, Stream } from '../../base/run.ts'
import type { Software } from '../../base/software.ts'
import type { InspectionTopic, InspectOptions } from '../../observe/inspect.ts'
import type { RunnerFigures } from '../../observe/metrics.ts'
import type { Deleted } from '../../storage/deletion.ts'
import type { Range } from '../../storage/files.ts'
import type { Listing } from '../../storage/listing.ts'
import type { Status } from '../../storage/walk.ts'
import type { ImageFromRunner, ImageToRunner, RunnerImages } from './image-messages.ts'
import type { FromNetworks, RunnerNetworks, ToNetworks } from './network-messages.ts'
import type { FromSandboxes, ToSandboxes } from './sandbox-messages.ts'
import type { RunnerSandboxes } from './sandboxes.ts'
import type { FromTunnels, ToTunnels } from './tunnel-messages.ts'

/** Must be equal on both sides: front and runner refuse a peer of another version. */
export const protocolVersion = 13

/** No message may be larger: code and standard input together stay below it. */
export const maxMessageBytes = 8 * 1024 * 1024

/** What can be asked of a runner, besides what every process reports. */
export type RunnerTopic = InspectionTopic | 'engine'

/** The report on `engine`. */
export interface EngineReport {
  slots: {
    ready: number
    idle: number
    busy: number
    undying: number
    max: number
    ready_wanted: number
    made: number
    failed: number
    jails_waiting: number
  }
  /** Why no slot can be made now. */
  trouble: string | null
  queue: { running: number; waiting: number }
  /** Runs by state. */
  runs: Record<string, number>
  runtime: string
  /** Of the processors, not mitigated by the kernel. */
  vulnerabilities: string[]
  /** `null` where there is no storage. */
  storage: { mounted: number; used: number; mounted_max: number; free_bytes: number; reserve_bytes: number } | null
  memory_is_short: boolean
}

export interface RunSummary {
  runId: string
  orgId: string
  keyId: string
  detached: boolean
  state: 'queued' | 'preparing' | 'running' | 'ended'
}

export type StorageArea = 'threads' | 'volumes'

/** A thread or a volume of an org: where its files are. `name` is that of a thread, or the id of a volume. */
export interface StorageRef {
  area: StorageArea
  org: string
  name: string
}

/** A thread or a volume as a whole. */
export interface StorageStatus {
  /** Room that it takes on the disk; of what was written in the last seconds it may know nothing yet. */
  sizeBytes: number
  /** As its users see it. */
  usedBytes: number
  /** What it can hold in all. */
  quotaBytes: number
  /** Files, directories and links, and how many there may be. */
  inodes: number
  inodesMax: number
  /** Whether something had it, or had it a moment ago. */
  mounted: boolean
}

/** Names in one question or answer about storage. */
export const storageNamesMax = 1_000

/** Bytes of a file that may be on their way, in either direction, before the receiver has said that it took some. */
export const fileWindowBytes = 1024 * 1024
/** Largest piece of a file in one message. */
export const filePieceBytes = 256 * 1024

/** From the front. `request` pairs an answer with its question. */
export type ToRunner =
  | ImageToRunner
  | ToNetworks
  | { type: 'hello'; version: number }
  /** Answered `ok` at once by a runner that responds. */
  | { type: 'ping'; request: number }
  /**
   * Idempotent: a run id that is known already is answered `ok` and not started again. Payload: code, then stdin. Once
   * the runner has taken it, it is attached to from its beginning, as if `attach` had come with the same number.
   */
  | { type: 'start'; request: number; spec: RunSpec; windowBytes: number; codeBytes: number; stdinBytes?: number }
  /** Replays what was kept after `afterSeq` and follows until the end. */
  | { type: 'attach'; request: number; runId: string; afterSeq: number; windowBytes: number }
  /** The reader has room for so many more output bytes; the runner sends no output beyond what was granted. */
  | { type: 'more'; attachment: number; bytes: number }
  | { type: 'detach'; attachment: number }
  | { type: 'cancel'; request: number; runId: string; cause: CancelCause }
  /** The run continues when its front disconnects, as if it had been started detached. */
  | { type: 'outlive'; request: number; runId: string }
  | { type: 'list'; request: number }
  | { type: 'stats'; request: number }
  /** What the process of the runner reports about itself, or about its slots. */
  | { type: 'inspect'; request: number; topic: RunnerTopic; options: InspectOptions }
  /** The ending is safe with the front; the runner may forget the run. */
  | { type: 'acknowledge'; request: number; runId: string }
  /** The slots of a key end: idle ones now, busy ones with their run. */
  | { type: 'retire_key'; request: number; keyId: string }
  | { type: 'files_list'; request: number; where: StorageRef; path: string; cursor?: string; limit: number }
  | { type: 'files_stat'; request: number; where: StorageRef; path: string }
  /** The answer is followed by `files_bytes`, at first as many as a window holds, and `files_end`. */
  | { type: 'files_read'; request: number; where: StorageRef; path: string; range?: Range }
  /** `files_bytes` follow when the runner gives room for them, then `files_finish`; until then nothing is replaced. */
  | { type: 'files_write'; request: number; where: StorageRef; path: string }
  /** Payload: the next bytes of a write. */
  | { type: 'files_bytes'; request: number }
  | { type: 'files_finish'; request: number }
  /** The reader has used this number of bytes. */
  | { type: 'files_more'; request: number; bytes: number }
  /** Ends a read, or a write without effect. Never an error: it may cross the end. */
  | { type: 'files_stop'; request: number }
  | { type: 'files_make_directory'; request: number; where: StorageRef; path: string }
  | { type: 'files_move'; request: number; where: StorageRef; from: string; to: string; mayReplace: boolean }
  | { type: 'files_delete'; request: number; where: StorageRef; path: string; recursive: boolean }
  | { type: 'storage_create'; request: number; where: StorageRef; quota: Quota }
  | { type: 'storage_remove'; request: number; where: StorageRef }
  | { type: 'storage_fork'; request: number; from: StorageRef; to: StorageRef }
  | { type: 'storage_inspect'; request: number; where: StorageRef }
  | { type: 'storage_sizes'; request: number; area: StorageArea; org: string; names: readonly string[] }
  | { type: 'storage_names'; request: number; area: StorageArea; org: string; after: string; limit: number }
  | ToSandboxes
  | ToTunnels

/** Who a runner is. An epoch names one life of a runner process. */
export interface RunnerIdentity {
  runnerId: string
  epoch: number
}

/** From the runner. */
/** Whether runs can start and threads can be created. */
export interface RunnerReadiness {
  type: 'ready'
  ready: boolean
  /** Why no run can start; empty while they can. */
  reason: string
  /** Why no thread can be created; absent while they can. */
  storage?: string
}

export type FromRunner =
  | ImageFromRunner
  | FromNetworks
  | ({ type: 'hello'; version: number } & RunnerIdentity)
  | RunnerReadiness
  | { type: 'ok'; request: number }
  | { type: 'runs'; request: number; runs: RunSummary[] }
  | { type: 'stats'; request: number; figures: RunnerFigures }
  | { type: 'inspected'; request: number; report: object }
  /** Also in the middle of a read or write, which it ends. */
  | { type: 'refused'; request: number; code: RefusalCode; details: Details }
  /** Events of an attachment carry the number of the request that made it. */
  | { type: 'running'; request: number; seq: number }
  | { type: 'output'; request: number; seq: number; stream: Stream }
  | { type: 'gap'; request: number; seq: number; stream: Stream; bytes: number }
  | { type: 'image'; request: number; seq: number; mimeType: ImageType }
  | { type: 'ended'; request: number; seq: number; result: RunResult }
  | { type: 'files_listing'; request: number; listing: Omit<Listing, 'cursor'> & { cursor?: string } }
  | { type: 'files_status'; request: number; status: Status }
  | { type: 'files_opened'; request: number; status: Status; lengthBytes: number }
  /** Payload: the next bytes of a read. */
  | { type: 'files_bytes'; request: number }
  | { type: 'files_end'; request: number }
  /** So many more bytes of a write may be sent. */
  | { type: 'files_room'; request: number; bytes: number }
  | { type: 'files_written'; request: number; bytes: number }
  | { type: 'files_deleted'; request: number; deleted: Deleted }
  | { type: 'storage_done'; request: number; did: boolean }
  | { type: 'storage_status'; request: number; status: StorageStatus }
  | { type: 'storage_sizes'; request: number; sizeBytes: (number | null)[] }
  | { type: 'storage_names'; request: number; names: string[] }
  | FromSandboxes
  | FromTunnels

/** A file as it is being read. */
export interface FileStream {
  status: Status
  /** Bytes that `bytes` gives, unless the file shrinks meanwhile. */
  lengthBytes: number
  /** To be read once; ending the iteration early, or `stop`, closes the file. */
  bytes: AsyncGenerator<Uint8Array, void, undefined>
  /** Closes the file unread. */
  stop(): void
}

/**
 * Files of threads and volumes. Paths are relative to the root; what is found there is never followed out of it. Files
 * can be read while runs have them; what changes those of a thread is refused then, those of a volume can be changed at
 * any time.
 * @throws Refusal thread_unknown, volume_unknown, thread_busy, path_invalid, path_not_found, storage_full, unavailable
 * and others.
 */
export interface RunnerFiles {
  /** @param page where an earlier part ended, and at most how many entries, 1 to 1,000. */
  list(where: StorageRef, path: string, page: { cursor?: string; limit: number }): Promise<Listing>
  stat(where: StorageRef, path: string): Promise<Status>
  read(where: StorageRef, path: string, range?: Range): Promise<FileStream>
  /** Writes a whole file, or nothing. @returns its bytes. */
  write(where: StorageRef, path: string, source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<number>
  makeDirectory(where: StorageRef, path: string): Promise<void>
  move(where: StorageRef, from: string, to: string, mayReplace: boolean): Promise<void>
  /** @param recursive whether a directory goes with all that it holds. */
  delete(where: StorageRef, path: string, recursive: boolean): Promise<Deleted>
}

/**
 * Threads and volumes as a whole. What needs one for itself is refused while a run has it or its files are in use; runs
 * and changes of files are refused meanwhile.
 * @throws Refusal thread_unknown, volume_unknown, thread_busy, volume_busy, storage_unavailable, unavailable.
 */
export interface RunnerStorage {
  /** Makes it, or lets a smaller one grow to the quota; none shrinks. @returns whether it was made. */
  create(where: StorageRef, quota: Quota): Promise<boolean>
  /** Erases it. @returns whether it existed. */
  remove(where: StorageRef): Promise<boolean>
  /** Copies a thread: all of it, or nothing. @returns false when `to` exists. */
  fork(from: StorageRef, to: StorageRef): Promise<boolean>
  /** @throws Refusal thread_unknown, volume_unknown also for one that nothing has used yet. */
  inspect(where: StorageRef): Promise<StorageStatus>
  /** @returns for each name the room that it takes on the disk, in bytes; null if it does not exist. */
  sizes(area: StorageArea, org: string, names: readonly string[]): Promise<(number | null)[]>
  /** @returns the next names after one, in order, at most `limit` of up to `storageNamesMax`. */
  names(area: StorageArea, org: string, after: string, limit: number): Promise<string[]>
}

/** What core needs of a runner, wherever it runs. */
export interface Runner {
  /** `runnerId` and `epoch` of the runner that is connected now; an epoch names one life of a runner process. */
  readonly identity: { runnerId: string; epoch: number } | undefined
  /** What the default image of the runner has; nothing until one has connected. */
  readonly software: Software
  /** Whether a run could start now, and if not, why. */
  readonly readiness: { ready: true } | { ready: false; reason: string }
  /** Why no thread can be created now; `undefined` while they can. */
  readonly storageProblem?: string | undefined

  /**
   * Starts a run; idempotent by `runId`. Resolves when the runner has taken it (queued or more).
   * @throws Refusal `queue_full`, `queue_timeout`, `unavailable`, `thread_busy`, `volume_unknown`, or whatever the runner refuses.
   */
  start(spec: RunSpec, input: RunInput): Promise<void>

  /**
   * Replays after `afterSeq` (0: everything) and follows until `ended`, which is always the last event.
   * Ending the iteration early detaches and leaves the run alone.
   * When the runner dies, the last event is `ended` as `failed {runner_lost}`.
   * @throws Refusal `run_unknown`.
   */
  attach(runId: string, afterSeq: number): AsyncIterableIterator<RunEvent, void, undefined>

  /**
   * Ends a run; resolves when the order was taken. Its ending arrives through `attach`.
   * @throws Refusal `run_unknown`, `run_finished`.
   */
  cancel(runId: string, cause: CancelCause): Promise<void>

  /**
   * Lets a run go on, from now on, when the front that started it is gone; one that has ended stays as it is.
   * @throws Refusal `run_unknown`.
   */
  outlive(runId: string): Promise<void>

  list(): Promise<RunSummary[]>

  readonly networks: RunnerNetworks

  /** How much is going on now. @throws Refusal `unavailable` while no runner is connected. */
  stats(): Promise<RunnerFigures>

  /** Returns a report of the runner. @throws Refusal `unavailable` while no runner is connected. */
  inspect(topic: RunnerTopic, options: InspectOptions): Promise<object>

  /** Lets the runner forget an ended run. */
  acknowledge(runId: string): Promise<void>

  /** Ends the slots of a key; runs in them end as `cancelled`. */
  retireKey(keyId: string): Promise<void>

  readonly files: RunnerFiles
  readonly storage: RunnerStorage
  readonly images: RunnerImages
  readonly sandboxes: RunnerSandboxes
}
