/** The messages about sandboxes on the socket between front and runner. */
import type { Review } from '../../base/host-workspace.ts'
import type { JailNetwork } from '../../base/network.ts'
import type {
  FileChange,
  ProcessEnding,
  ProcessSpec,
  ProcessStatus,
  ProcessStream,
  SandboxFigures,
  SandboxFile,
  SandboxSpec,
  SandboxStatus,
  TerminalSize,
} from '../../base/sandbox.ts'
import type { ReviewRequest, RewoundFiles } from './sandboxes.ts'

/** Sandboxes in one question about figures. */
export const figuresMax = 1_000
/** Paths in one request about reviewed changes. */
export const reviewPathsMax = 1_000
/** Largest piece of input to a process in one message. */
export const inputPieceBytes = 64 * 1024

interface OfProcess {
  request: number
  sandboxId: string
  processId: number
}

interface OfContext {
  request: number
  sandboxId: string
  context: string
}

interface OfFile {
  request: number
  sandboxId: string
  path: string
  user?: string
}

/**
 * Transfers use the messages of other files: a read is answered `sandbox_file_opened` and followed by `files_bytes` and
 * `files_end`; for a write `files_bytes` and `files_finish` follow. `files_stop` ends both, and a watch.
 */
export type ToSandboxFiles =
  | ({ type: 'sandbox_file_stat' } & OfFile)
  | ({ type: 'sandbox_file_list'; cursor?: string; limit: number } & OfFile)
  | ({ type: 'sandbox_file_read'; range?: { offset: number; lengthBytes: number } } & OfFile)
  | ({ type: 'sandbox_file_write'; append?: boolean; mode?: number; makeParents?: boolean } & OfFile)
  | ({ type: 'sandbox_file_make_directory'; parents?: boolean; mode?: number } & OfFile)
  | ({ type: 'sandbox_file_move'; to: string; mayReplace: boolean } & OfFile)
  | ({ type: 'sandbox_file_copy'; to: string; mayReplace: boolean } & OfFile)
  | ({ type: 'sandbox_file_remove'; recursive: boolean } & OfFile)
  /** Answered `ok` when everything is watched; `sandbox_file_changed` follow, then `files_end` or a refusal. */
  | ({ type: 'sandbox_file_watch'; recursive: boolean } & OfFile)

/** From the front. `request` pairs an answer with its question. */
export type ToSandboxes =
  | { type: 'sandbox_start'; request: number; spec: SandboxSpec }
  | { type: 'sandbox_stop'; request: number; sandboxId: string; graceMs: number }
  | { type: 'sandbox_pause'; request: number; sandboxId: string }
  | { type: 'sandbox_resume'; request: number; sandboxId: string }
  | { type: 'sandbox_network'; request: number; sandboxId: string; network: JailNetwork }
  | { type: 'sandbox_remove'; request: number; orgId: string; sandboxId: string }
  /** About a sandbox that may be stopped; `apply` and `drop` require that it is. Absent paths: all changes. */
  | ({ type: 'sandbox_review'; request: number; paths?: readonly string[] } & ReviewRequest)
  | ({ type: 'sandbox_state_keep'; most: number; undone: number } & OfContext)
  | ({ type: 'sandbox_state_check'; calls: number } & OfContext)
  | ({ type: 'sandbox_state_rewind'; calls: number } & OfContext)
  | ({ type: 'sandbox_state_forget' } & OfContext)
  | { type: 'sandbox_list'; request: number }
  /** Answered `ok`; `sandbox_changed` follow until the connection ends. */
  | { type: 'sandbox_changes'; request: number }
  | { type: 'sandbox_figures'; request: number; sandboxIds: readonly string[] }
  /** With a window, the request also attaches to it from its first output. */
  | { type: 'process_start'; request: number; sandboxId: string; spec: ProcessSpec; windowBytes?: number }
  /** Replays what is kept after `afterSeq` and follows until the end. */
  | ({ type: 'process_attach'; afterSeq: number; windowBytes: number } & OfProcess)
  /** The reader has room for so many more output bytes. */
  | { type: 'process_more'; attachment: number; bytes: number }
  | { type: 'process_detach'; attachment: number }
  /** Payload: the bytes. Answered when the sandbox took them. */
  | ({ type: 'process_write'; to: 'stdin' | 'channel' } & OfProcess)
  | ({ type: 'process_close'; what: 'stdin' | 'channel' } & OfProcess)
  | ({ type: 'process_signal'; signal: number; target: 'group' | 'one' } & OfProcess)
  | ({ type: 'process_resize'; size: TerminalSize } & OfProcess)
  | { type: 'process_list'; request: number; sandboxId: string }
  | ({ type: 'process_forget' } & OfProcess)
  | { type: 'sandbox_open_files'; request: number; spec: SandboxSpec }
  | ToSandboxFiles

/** From the runner. */
export type FromSandboxes =
  | { type: 'sandbox_file_status'; request: number; status: SandboxFile }
  | { type: 'sandbox_file_listing'; request: number; entries: SandboxFile[]; cursor?: string }
  | { type: 'sandbox_file_opened'; request: number; status: SandboxFile }
  | { type: 'sandbox_file_changed'; request: number; change: FileChange }
  | { type: 'sandbox_removed'; request: number; did: boolean }
  | { type: 'sandbox_reviewed'; request: number; review: Review }
  | { type: 'sandbox_rewound'; request: number; files: RewoundFiles }
  | { type: 'sandboxes'; request: number; sandboxes: SandboxStatus[] }
  | { type: 'sandbox_changed'; request: number; status: SandboxStatus }
  | { type: 'sandbox_figures'; request: number; figures: (SandboxFigures | null)[] }
  | { type: 'process_status'; request: number; status: ProcessStatus }
  | { type: 'processes'; request: number; processes: ProcessStatus[] }
  /** Events of an attachment carry the number of the request that made it. Payload: the bytes. */
  | { type: 'process_output'; request: number; seq: number; stream: ProcessStream }
  | { type: 'process_gap'; request: number; seq: number; stream: ProcessStream; bytes: number }
  | { type: 'process_ended'; request: number; seq: number; ending: ProcessEnding }
