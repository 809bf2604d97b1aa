/**
 * The types of named sandboxes that all modules share. Plain data, sent unchanged over the socket between front and runner.
 */
import type { JailNetwork, NetworkUse } from './network.ts'
import type { Limits, Quota, RunThread, RunVolume, Signal } from './run.ts'

/** Limits of a sandbox: those of a run that apply to a long-lived environment. */
export type SandboxLimits = Pick<Limits, 'memoryBytes' | 'cpus' | 'pids' | 'openFiles' | 'fileBytes' | 'tmpBytes'>

/** The home of the user of runs, and of that user in sandboxes; the image decides it. */
export const homeDirectory = '/home/baponi'

/** What a runner needs to start a sandbox. */
export interface SandboxSpec {
  /** Public id; identifies it and its disk on the runner, and does not change with its name. */
  sandboxId: string
  orgId: string
  /** The key that started it: its slot is bound to this key. */
  keyId: string
  /** Name of an image of the runner; absent: the default image. */
  image?: string
  env: Record<string, string>
  /** Absolute path inside; created if it does not exist. */
  workdir: string
  /** Name or number of the user that processes run as unless they name another; `root` is root of the sandbox only. */
  user: string
  limits: SandboxLimits
  /** The quota of its disk, which holds everything that differs from the image. It may grow, never shrink. */
  disk: Quota
  volumes?: readonly RunVolume[]
  /** Mounted at the home of the user; no run has it while the sandbox lives. */
  thread?: RunThread
  /** Name of a workspace of the configuration: the runner mounts its host directory beside the volumes. */
  workspace?: string
  /** Absent: it has no network except its loopback. */
  network?: JailNetwork
}

/** A process of a sandbox: `argv` is executed as it is, without a shell. */
export interface ProcessSpec {
  argv: readonly string[]
  /** Added to the variables of the sandbox. */
  env?: Record<string, string>
  /** Absolute path; absent: the working directory of the sandbox. */
  cwd?: string
  user?: string
  /** A pseudo-terminal of this size; standard error is part of its output then. */
  terminal?: TerminalSize
  /** Whether standard input can be written; absent or false: it is at its end from the start. */
  stdin?: boolean
  /**
   * A two-way stream of bytes on descriptor 3 beside the standard streams, for kernels and other programs of the
   * product. What a program writes to it is kept until a reader has received it: the program waits, nothing is dropped.
   */
  channel?: boolean
  /** Killed with its process group after this wall time; absent: it lives as long as the sandbox. */
  timeoutMs?: number
  /**
   * Output that is kept for readers that attach later; the oldest is dropped first. Default 1 MiB, at most 8 MiB. While a
   * reader is attached nothing is dropped before it has received it: a slow reader makes the process wait.
   */
  keepBytes?: number
}

export interface TerminalSize {
  columns: number
  rows: number
}

/** How a process ended. */
export type ProcessEnding =
  /** `oomKills`: processes of the sandbox that the kernel killed for memory while it ran; absent: none. */
  | { kind: 'exited'; code: number; oomKills?: number }
  | { kind: 'signaled'; signal: Signal }
  | { kind: 'timed_out'; limitMs: number }
  /** The kernel killed it, because the sandbox reached its memory limit. */
  | { kind: 'out_of_memory'; limitBytes: number }
  /** It could not be executed: the program was not found, is not executable, or the user or directory does not exist. */
  | { kind: 'not_started'; reason: string }
  /** The sandbox stopped, crashed or was deleted. */
  | { kind: 'sandbox_ended' }

export const processStreams = ['stdout', 'stderr', 'channel'] as const
export type ProcessStream = (typeof processStreams)[number]

/**
 * Sequence numbers increase: that of an output event is the number of the last byte among all output of the process, and
 * that of the ending is one more. Attaching after a number continues exactly there.
 */
export type ProcessEvent =
  | { kind: 'output'; seq: number; stream: ProcessStream; bytes: Uint8Array }
  /** Output that is no longer kept. */
  | { kind: 'gap'; seq: number; stream: ProcessStream; bytes: number }
  /** Always the last event. */
  | { kind: 'ended'; seq: number; ending: ProcessEnding }

export interface ProcessStatus {
  /** Chosen by the runner, unique within the sandbox, never reused. */
  processId: number
  /** As processes inside the sandbox see it; absent until it is known. */
  pid?: number
  argv: readonly string[]
  startedAt: number
  ending?: ProcessEnding
}

/**
 * States that a runner knows. `crashed` has a reason; the disk of a stopped or crashed sandbox is intact. `stopped` is only
 * reported as a change: a runner keeps nothing of a stopped sandbox but its disk.
 */
export type SandboxState =
  | { kind: 'starting' }
  | { kind: 'running' }
  | { kind: 'paused' }
  | { kind: 'stopping' }
  | { kind: 'stopped' }
  | { kind: 'crashed'; reason: SandboxCrash }

export const sandboxCrashes = [
  /** The runner that owned the sandbox has exited. */
  'runner_lost',
  /** Its slot or its init exited. */
  'slot_lost',
  /** The kernel killed its init for memory, or its sockets held more than is allowed beside its memory limit. */
  'out_of_memory',
  /** Its disk failed. */
  'disk_failed',
] as const
export type SandboxCrash = (typeof sandboxCrashes)[number]

/** Figures read from the kernel outside the sandbox. */
export interface SandboxFigures {
  cpuSeconds: number
  memoryBytes: number
  memoryLimitBytes: number
  /** Space that its disk uses, in bytes, and its quota. */
  diskBytes: number
  diskQuotaBytes: number
  processes: number
  uptimeMs: number
  networkReceivedBytes: number
  networkSentBytes: number
  /** Its connections since it was started. */
  network: NetworkUse[]
}

export interface SandboxStatus {
  sandboxId: string
  orgId: string
  state: SandboxState
  startedAt: number
  /** Where it has connected to, in its last status, for one reader; absent where it has not. */
  network?: { keyId: string; uses: readonly NetworkUse[] }
}

/** A file or directory in a sandbox. Times are milliseconds since 1970. */
export interface SandboxFile {
  name: string
  path: string
  kind: 'file' | 'directory' | 'link' | 'fifo' | 'socket' | 'device'
  sizeBytes: number
  /** Permission bits, for example 0o644. */
  mode: number
  uid: number
  gid: number
  modifiedMs: number
  /** Where a link points. */
  target?: string
}

export type FileChange = { kind: 'created' | 'changed' | 'deleted' | 'moved_from' | 'moved_to'; path: string }

/** Who may use a published port: everyone who knows its address, or keys of the organization. */
export const portAccesses = ['key', 'public'] as const
export type PortAccess = (typeof portAccesses)[number]
