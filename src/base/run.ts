import type { JailNetwork, NetworkUse } from './network.ts'

/**
 * The types of a run that all modules share: its request, its events and its ending.
 * Plain data, sent unchanged over the socket between front and runner.
 */

export const languages = ['python', 'node', 'typescript', 'bash'] as const
export type Language = (typeof languages)[number]

/** Other common names of the languages, in lower case. */
const languageAliases: Readonly<Record<string, Language>> = {
  py: 'python',
  python3: 'python',
  javascript: 'node',
  js: 'node',
  nodejs: 'node',
  ts: 'typescript',
  sh: 'bash',
  shell: 'bash',
}

/** Returns the language that a common name of it means, in any case; any other value unchanged. */
export function toLanguage(name: unknown): unknown {
  if (typeof name !== 'string') return name
  const lower = name.toLowerCase()
  if (Object.hasOwn(languageAliases, lower)) return languageAliases[lower]
  return languages.find((known) => known === lower) ?? name
}

/** The pattern of a dotted module name that Python can import. */
export const moduleNamePattern = '^[A-Za-z_][A-Za-z0-9_]{0,63}([.][A-Za-z_][A-Za-z0-9_]{0,63}){0,7}$'

export const streams = ['stdout', 'stderr'] as const
export type Stream = (typeof streams)[number]

/** The resource limits of a run. The kernel or the runner enforces each of them, never the guest. */
export interface Limits {
  /** Memory and tmpfs content together; swap is not available. */
  memoryBytes: number
  /** CPU share in cores; 0.5 is half a core. */
  cpus: number
  /** Concurrent processes and threads. */
  pids: number
  /** Open files of one process. */
  openFiles: number
  /** Size of one file. */
  fileBytes: number
  /** Size of /tmp, and of /dev/shm. */
  tmpBytes: number
  /** Size of the home directory of a run without a thread. */
  homeBytes: number
  /** Output kept per stream: the start and the end are kept, the rest is counted and dropped. */
  outputSoftBytes: number
  /** Output written per stream: a run that exceeds it ends as `output_limit`. */
  outputHardBytes: number
  /** Wall time from the first instruction of user code. */
  timeoutMs: number
}

/**
 * Which runs can use the same slot one after another. `key`: runs of one key and profile revision; `thread`: of these,
 * runs with the same thread; `never`: none. With `thread`, a run without a thread gets its own slot.
 */
export const reuses = ['key', 'thread', 'never'] as const
export type Reuse = (typeof reuses)[number]

/** The capacity of a filesystem, enforced by its size. */
export interface Quota {
  bytes: number
  /** Files, directories and links. */
  inodes: number
}

/** The thread of a run: its persistent home directory, used exclusively. */
export interface RunThread {
  /** The name that its organization uses. */
  id: string
  /** Fencing number: increases with each holder of the thread, and the runner rejects a lower one than it has seen. */
  fence: number
  /** The quota with which it is created if it does not exist. */
  quota: Quota
}

/** Maximum number of volumes in a profile: each is a mount in every run. */
export const volumesMax = 16

/** A volume that is mounted at `/volumes/<slug>`. */
export interface RunVolume {
  slug: string
  /** Identifies it on the runner; does not change with the slug. */
  name: string
  readOnly: boolean
  /** The quota with which it is created if it does not exist. */
  quota: Quota
}

export interface RunSpec {
  /** Public id of the run (`trace_id`). */
  runId: string
  orgId: string
  keyId: string
  profile: string
  /** Changes with any change of the profile; a slot serves only one revision. */
  profileRevision: string
  reuse: Reuse
  language: Language
  /** Name of a stored image; absent: the default image. */
  image?: string
  /** Python modules that are imported in advance. */
  preload?: readonly string[]
  /** Merged and validated variables of the caller; they override the fixed ones of the engine. */
  env: Record<string, string>
  limits: Limits
  /** Whether it continues after the front that started it has exited. A run can be detached later. */
  detached: boolean
  /** Absent: the home directory is an empty tmpfs. */
  thread?: RunThread
  /** Slugs and names are unique. */
  volumes?: readonly RunVolume[]
  /** Absent: its jail has no network except its loopback. */
  network?: JailNetwork
}

export interface RunInput {
  /** Source text, at most 1 MB. */
  code: Uint8Array
  /** Standard input; `undefined` means at end of file from the start. */
  stdin: Uint8Array | undefined
}

/** Names without "SIG" where the kernel has one, otherwise the number: "KILL", "TERM", "34". */
export type Signal = string

export const failureReasons = [
  /** The runner that owned the run has exited. */
  'runner_lost',
  /** The run was found unfinished after a crash; it is never executed twice. */
  'interrupted',
  /** The runner rejected the run, and its caller received the reason. */
  'not_started',
  /** No slot could be created. */
  'slot_failed',
  /** The jail could not be created. */
  'jail_failed',
  /** The slot or its guest exited during the run. */
  'slot_lost',
  /** The disk could not store files that the run wrote. */
  'files_lost',
] as const
export type FailureReason = (typeof failureReasons)[number]

/** How a run ended: data, never an exception. A switch over it has no default. */
export type Ending =
  | { kind: 'exited'; code: number }
  | { kind: 'signaled'; signal: Signal }
  | { kind: 'timed_out'; limitMs: number }
  /** `heldAs` names memory that the kernel charges to no cgroup, where that ended the run. */
  | { kind: 'out_of_memory'; limitBytes: number; heldAs?: 'socket_buffers' }
  | { kind: 'output_limit'; limitBytes: number }
  /**
   * The program failed while its storage was full. With `disk: 'server'`, the run was ended because the disk of the
   * server ran out of space, before its storage reached the limit.
   */
  | { kind: 'disk_quota'; limitBytes: number; disk?: 'server' }
  | { kind: 'cancelled' }
  | { kind: 'shutdown' }
  | { kind: 'failed'; reason: FailureReason }

/** Duration of each phase in milliseconds of the monotonic clock; the phases are contiguous. */
export interface Timings {
  /** Waiting in the queue. */
  queueMs: number
  /** Getting a slot: near zero for a warm one. */
  slotMs: number
  /** Creating the jail: near zero for a prewarmed one. */
  jailMs: number
  /** Waiting for a jail that is being prewarmed; an interpreter that starts with the run counts as `runMs`. */
  hostMs: number
  /** User code, from its start until the guest reported that the jail is dead and its output is forwarded. */
  runMs: number
  /** Reading kernel counters and the changed files of the thread, and releasing the thread. */
  drainMs: number
  /** Writing the row of the ending; absent in that row, and if nothing waited for it. */
  recordMs?: number
}

export const noTimings: Timings = { queueMs: 0, slotMs: 0, jailMs: 0, hostMs: 0, runMs: 0, drainMs: 0 }

/** The kind of a file, detected from its leading bytes and not from its name. */
export const fileKinds = ['text', 'image', 'audio', 'binary'] as const
export type FileKind = (typeof fileKinds)[number]

/** A file of a thread as a run left it. */
export interface ChangedFile {
  /** Relative to the home directory. */
  path: string
  sizeBytes: number
  /** Hexadecimal; `null` if the file is too large. */
  sha256: string | null
  kind: FileKind
  mimeType: string
}

/** Files that a run created or changed in its thread, by path. Deleted files are not included. */
export interface ChangedFiles {
  /** The thread that contains the files. */
  threadId: string
  changed: ChangedFile[]
  /** Whether files can be missing: because of a limit, or because a name is not UTF-8. */
  truncated: boolean
}

/** Formats of images that a program can display. */
export type ImageType = 'image/png' | 'image/jpeg'

/** An image that a run displayed. */
export interface ShownImage {
  mimeType: ImageType
  bytes: Uint8Array
}

/** Limits for the images of one run; further images are counted and dropped. */
export const imageBounds = { count: 16, bytes: 8 * 1024 * 1024, bytesOfOne: 4 * 1024 * 1024 } as const

export interface ImageCounts {
  shown: number
  /** Images beyond the limits, and incomplete ones. */
  dropped: number
  /** Whether data was received that is not an image; it and all later data is dropped. */
  ignored: boolean
}

export interface RunResult {
  ending: Ending
  /** Duration of the user code; equals `timings.runMs`. */
  durationMs: number
  /** From cgroup files. */
  cpuTimeMs: number
  /** From cgroup files; page cache and tmpfs content included. */
  memoryPeakBytes: number
  /** Processes of this run that the kernel killed for memory, even if the main process survived. */
  oomKills: number
  /** Bytes written to each stream, including dropped ones. */
  outputBytes: Record<Stream, number>
  limits: Limits
  timings: Timings
  /** Present for a run with a thread whose code has started. */
  files?: ChangedFiles
  /** Present for a run that displayed images. */
  images?: ImageCounts
  /** Present for a run with a network. */
  network?: NetworkUse[]
}

/**
 * The events of a run, in order. `seq` is strictly increasing; attaching after a seq continues exactly there.
 * Order is preserved within each stream.
 */
export type RunEvent =
  | { kind: 'running'; seq: number }
  | { kind: 'output'; seq: number; stream: Stream; bytes: Uint8Array }
  /** Bytes of this stream that were dropped here because of the soft limit. */
  | { kind: 'gap'; seq: number; stream: Stream; bytes: number }
  | ({ kind: 'image'; seq: number } & ShownImage)
  | { kind: 'ended'; seq: number; result: RunResult }

/** Why a run is stopped from outside. */
export type CancelCause = 'cancelled' | 'shutdown'

/** The limits of a run whose limits are no longer known; zero means unknown. */
export const unknownLimits: Limits = {
  memoryBytes: 0,
  cpus: 0,
  pids: 0,
  openFiles: 0,
  fileBytes: 0,
  tmpBytes: 0,
  homeBytes: 0,
  outputSoftBytes: 0,
  outputHardBytes: 0,
  timeoutMs: 0,
}

/** Returns the result of a run without measurements: its code never started, or the runner was lost. */
export function unmeasured(limits: Limits, ending: Ending): RunResult {
  return {
    ending,
    durationMs: 0,
    cpuTimeMs: 0,
    memoryPeakBytes: 0,
    oomKills: 0,
    outputBytes: { stdout: 0, stderr: 0 },
    limits,
    timings: noTimings,
  }
}
