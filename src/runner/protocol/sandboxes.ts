import type { Duplex } from 'node:stream'
import type { Review } from '../../base/host-workspace.ts'
import type { JailNetwork } from '../../base/network.ts'
import type {
  FileChange,
  ProcessEvent,
  ProcessSpec,
  ProcessStatus,
  SandboxFigures,
  SandboxFile,
  SandboxSpec,
  SandboxStatus,
  TerminalSize,
} from '../../base/sandbox.ts'

/** A question about the changes that a workspace keeps. */
export interface ReviewRequest {
  orgId: string
  sandboxId: string
  /** Name in the configuration. */
  workspace: string
  act: 'list' | 'diff' | 'apply' | 'drop'
}

/** What a rewind did to the files of a sandbox. */
export interface RewoundFiles {
  /** Entries that were put back, and that were removed. */
  restored: number
  removed: number
  /** Entries that are not as they were. */
  failed: number
  /** Paths of some of these, relative to the root of the sandbox. */
  problems: readonly string[]
}

/**
 * Earlier states of the disk of a sandbox, kept by context and counted from the present one. They end with the sandbox.
 * @throws Refusal rewind_unavailable, and those of RunnerSandboxes.
 */
export interface SandboxStates {
  /**
   * Keeps the present state. One that cannot be kept counts as well.
   * @param most that are kept beside it. @param undone number of states before the latest that it replaces, with the latest.
   */
  keep(sandboxId: string, context: string, most: number, undone: number): Promise<void>
  /** Resolves when the state before these calls is kept. */
  check(sandboxId: string, context: string, calls: number): Promise<void>
  /** Puts all files back into the state before these calls. Files that processes have open stay as they are for them. */
  rewind(sandboxId: string, context: string, calls: number): Promise<RewoundFiles>
  forget(sandboxId: string, context: string): Promise<void>
}

/**
 * Sandboxes of a runner. A sandbox belongs to the runner and not to a connection: it continues when the front restarts.
 * Its disk continues when the runner restarts.
 * @throws Refusal sandbox_unknown, sandbox_not_running, sandbox_busy, image_unknown, storage_full, unavailable.
 */
export interface RunnerSandboxes {
  /** Starts it, with the disk that it had or a new one. Idempotent by id while it runs. Resolves when it is running. */
  start(spec: SandboxSpec): Promise<void>
  /** Sends SIGTERM to its processes, kills them after the grace period, and keeps the disk. */
  stop(sandboxId: string, graceMs: number): Promise<void>
  /** Freezes every process: it uses no processor time, and its memory can be reclaimed. */
  pause(sandboxId: string): Promise<void>
  resume(sandboxId: string): Promise<void>
  /**
   * Applies another policy and other secrets to new connections, and ends open ones that it does not allow. A sandbox that
   * was started without a network has none until it is started again.
   */
  changeNetwork(sandboxId: string, network: JailNetwork): Promise<void>
  /** Erases the disk; stops the sandbox first. Returns whether there was one. */
  remove(orgId: string, sandboxId: string): Promise<boolean>
  /** Every sandbox that is not stopped, for a front that starts. */
  list(): Promise<SandboxStatus[]>
  /** Changes of state from now on, of all sandboxes. Ends when the connection to the runner is lost. */
  changes(): AsyncIterableIterator<SandboxStatus, void, undefined>
  figures(sandboxIds: readonly string[]): Promise<(SandboxFigures | null)[]>
  /**
   * Lists the changes of a workspace with the mode `review`, with their content for `diff`; or applies or drops them, which
   * requires that the sandbox is stopped. Returns the changes that were found, applied or dropped.
   * @param paths of changes, and of directories that contain them; absent: all.
   * @throws Refusal path_not_found, sandbox_busy, and those of files.
   */
  review(request: ReviewRequest, paths?: readonly string[]): Promise<Review>
  /**
   * Makes the files of a stopped sandbox accessible, and keeps them so while they are used: its disk is mounted as when it
   * runs, but none of its processes, and it is not reported as running. A running one is left as it is.
   */
  openFiles(spec: SandboxSpec): Promise<void>
  readonly processes: SandboxProcesses
  readonly states: SandboxStates
  readonly tunnels: SandboxTunnels
  readonly files: SandboxFiles
}

export interface SandboxTunnels {
  /**
   * Connects to a server on the loopback of a sandbox.
   * @returns the connection. Each direction ends on its own.
   * @throws Refusal port_closed, and those of RunnerSandboxes.
   */
  open(sandboxId: string, port: number): Promise<Duplex>
}

/** @throws Refusal process_unknown, and those of RunnerSandboxes. */
export interface SandboxProcesses {
  /** Resolves when it was executed, or has ended as `not_started`. */
  start(sandboxId: string, spec: ProcessSpec): Promise<ProcessStatus>
  /** The same, attached from its first output. The events must be iterated, or their iteration ended. */
  startFollowed(
    sandboxId: string,
    spec: ProcessSpec,
  ): Promise<{ status: ProcessStatus; events: AsyncIterableIterator<ProcessEvent, void, undefined> }>
  /**
   * Replays what is kept after `afterSeq` and follows until `ended`, which every reader gets: a number beyond the newest
   * event stands for it. Ending the iteration early detaches only.
   */
  attach(sandboxId: string, processId: number, afterSeq: number): AsyncIterableIterator<ProcessEvent, void, undefined>
  /**
   * Resolves when the sandbox took the bytes: a program that does not read makes it wait, until `signal` ends that. Then
   * at most one piece of them can still arrive.
   * @throws Refusal input_full.
   */
  write(
    sandboxId: string,
    processId: number,
    to: 'stdin' | 'channel',
    bytes: Uint8Array,
    signal?: AbortSignal,
  ): Promise<void>
  close(sandboxId: string, processId: number, what: 'stdin' | 'channel'): Promise<void>
  /** To its process group, or to it alone. */
  signal(sandboxId: string, processId: number, signal: number, target: 'group' | 'one'): Promise<void>
  resize(sandboxId: string, processId: number, size: TerminalSize): Promise<void>
  list(sandboxId: string): Promise<ProcessStatus[]>
  /** Forgets an ended process and its output. */
  forget(sandboxId: string, processId: number): Promise<void>
}

/**
 * Files of a sandbox that runs or whose files were opened, accessed inside it as its user, so that no link leads out of it. Paths are
 * absolute, or relative to its working directory. Writing replaces a file as a whole and keeps its mode and owner.
 * @throws Refusal path_invalid, path_not_found, not_a_file, not_a_directory, storage_full and others.
 */
export interface SandboxFiles {
  stat(sandboxId: string, path: string, user?: string): Promise<SandboxFile>
  list(
    sandboxId: string,
    path: string,
    page: { cursor?: string; limit: number },
    user?: string,
  ): Promise<{ entries: SandboxFile[]; cursor?: string }>
  read(
    sandboxId: string,
    path: string,
    range?: { offset: number; lengthBytes: number },
    user?: string,
  ): Promise<{ status: SandboxFile; bytes: AsyncIterable<Uint8Array> }>
  write(
    sandboxId: string,
    path: string,
    source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    how: { append?: boolean; mode?: number; makeParents?: boolean },
    user?: string,
  ): Promise<number>
  makeDirectory(
    sandboxId: string,
    path: string,
    how: { parents?: boolean; mode?: number },
    user?: string,
  ): Promise<void>
  move(sandboxId: string, from: string, to: string, mayReplace: boolean, user?: string): Promise<void>
  copy(sandboxId: string, from: string, to: string, mayReplace: boolean, user?: string): Promise<void>
  remove(sandboxId: string, path: string, recursive: boolean, user?: string): Promise<void>
  /**
   * Changes at or below a path, from inotify inside the sandbox; `recursive` watches directories below as well, at most 4,096.
   * Resolves when everything is watched. Ending the iteration ends the watch.
   */
  watch(
    sandboxId: string,
    path: string,
    recursive: boolean,
    user?: string,
  ): Promise<AsyncIterableIterator<FileChange, void, undefined>>
}
