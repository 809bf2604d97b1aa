/**
 * The words in which every room speaks of a run: what is asked for, what happens, how it ends.
 * Plain data; it crosses the socket between front and runner as it stands here.
 */

export const languages = ['python', 'node', 'bash'] as const
export type Language = (typeof languages)[number]

/** A dotted name that python can import. */
export const moduleNamePattern = '^[A-Za-z_][A-Za-z0-9_]{0,63}([.][A-Za-z_][A-Za-z0-9_]{0,63}){0,7}$'

export const streams = ['stdout', 'stderr'] as const
export type Stream = (typeof streams)[number]

/** What one run may use. Each number is enforced by the kernel or by the runner, never by the guest's word. */
export interface Limits {
  /** Memory and tmpfs content together; there is no swap beyond it. */
  memoryBytes: number
  /** CPU share in cores; 0.5 is half a core. */
  cpus: number
  /** Processes and threads at once. */
  pids: number
  /** Open files of one process. */
  openFiles: number
  /** Size of one file. */
  fileBytes: number
  /** Size of /tmp, and of /dev/shm. */
  tmpBytes: number
  /** Size of the home directory of a run without a thread. */
  homeBytes: number
  /** Kept per stream: what exceeds it is counted and dropped, head and tail kept. */
  outputSoftBytes: number
  /** Written per stream: beyond it the run ends as `output_limit`. */
  outputHardBytes: number
  /** Wall time from the first instruction of user code. */
  timeoutMs: number
}

/**
 * Which runs may share a slot, one after another. `key`: those of one key and profile revision; `thread`: those that
 * have the same thread as well; `never`: each run has a slot of its own, and so has one without a thread under `thread`.
 */
export const reuses = ['key', 'thread', 'never'] as const
export type Reuse = (typeof reuses)[number]

/** What a filesystem may hold, enforced by its size alone. */
export interface Quota {
  bytes: number
  /** Files, directories and links. */
  inodes: number
}

/** The thread that a run has for itself: its home directory, kept from run to run. */
export interface RunThread {
  /** As its org calls it. */
  id: string
  /** Grows with each holder of the thread; a runner that has seen a higher one refuses. */
  fence: number
  /** With which it is made when there is none yet. */
  quota: Quota
}

/** Volumes of one profile: each is a mount of every run. */
export const volumesMax = 16

/** A volume that a run has at `/volumes/<slug>`, beside others. */
export interface RunVolume {
  slug: string
  /** By which the runner knows it; stays when the slug changes. */
  name: string
  readOnly: boolean
  /** With which it is made when there is none yet. */
  quota: Quota
}

export interface RunSpec {
  /** Public id of the run (`trace_id`). */
  runId: string
  orgId: string
  keyId: string
  profile: string
  /** Changes whenever anything in the profile changes; slots never outlive a revision. */
  profileRevision: string
  reuse: Reuse
  language: Language
  /** Modules that the language host of the slot has imported ahead of time. */
  preload?: readonly string[]
  /** The caller's variables, already merged and checked; the engine adds its own fixed ones below them. */
  env: Record<string, string>
  limits: Limits
  /** Goes on when the front that started it is gone; a run that is not may be let to later. */
  detached: boolean
  /** Absent: the home directory is an empty tmpfs. */
  thread?: RunThread
  /** Each slug and each name once. */
  volumes?: readonly RunVolume[]
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
  /** The runner that owned the run is gone. */
  'runner_lost',
  /** The run was found unfinished after a crash; it is never executed twice. */
  'interrupted',
  /** The runner did not take the run, and its caller was told why. */
  'not_started',
  /** No slot could be made. */
  'slot_failed',
  /** The jail could not be made. */
  'jail_failed',
  /** The slot or its guest ended under the run. */
  'slot_lost',
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
  /** Its storage was full when the program gave up by itself. */
  | { kind: 'disk_quota'; limitBytes: number }
  | { kind: 'cancelled' }
  | { kind: 'shutdown' }
  | { kind: 'failed'; reason: FailureReason }

/** Where the time went, in milliseconds of the monotonic clock; the phases follow one another without a gap. */
export interface Timings {
  /** Waiting for a turn. */
  queueMs: number
  /** Getting a slot: near zero when a warm one was there. */
  slotMs: number
  /** From the request to the guest until the jail was there: near zero when one had been made ahead. */
  jailMs: number
  /** Waiting for a jail that is being made ahead and its interpreter; one that starts with the run does so in `runMs`. */
  hostMs: number
  /** User code, from its start until the guest told that the jail was dead and its output passed on. */
  runMs: number
  /** From then until all is known: counters of the kernel, what changed in its thread, the thread given back. */
  drainMs: number
  /** Writing the row of the ending; absent in that row, and where nobody waited for it. */
  recordMs?: number
}

export const noTimings: Timings = { queueMs: 0, slotMs: 0, jailMs: 0, hostMs: 0, runMs: 0, drainMs: 0 }

/** What a file holds, by its first bytes; its name says little. */
export const fileKinds = ['text', 'image', 'audio', 'binary'] as const
export type FileKind = (typeof fileKinds)[number]

/** A file of a thread as a run left it. */
export interface ChangedFile {
  /** Relative to the home directory. */
  path: string
  sizeBytes: number
  /** Hexadecimal; `null` where it is too much to read. */
  sha256: string | null
  kind: FileKind
  mimeType: string
}

/** What a run has created or changed in its thread, by path. What it deleted is not told. */
export interface ChangedFiles {
  /** Whose files they are. */
  threadId: string
  changed: ChangedFile[]
  /** There is more: too much to tell, to look at, or with names that no path can give. */
  truncated: boolean
}

/** What a program may show. */
export type ImageType = 'image/png' | 'image/jpeg'

/** An image that a run showed. */
export interface ShownImage {
  mimeType: ImageType
  bytes: Uint8Array
}

/** Of one run: how many images, and how large, are told; more are counted and dropped. */
export const imageBounds = { count: 16, bytes: 8 * 1024 * 1024, bytesOfOne: 4 * 1024 * 1024 } as const

export interface ImageCounts {
  shown: number
  /** Beyond the bounds, or cut short. */
  dropped: number
  /** What came was no image; it and what followed is not told. */
  ignored: boolean
}

export interface RunResult {
  ending: Ending
  /** User code only: equals `timings.runMs`. */
  durationMs: number
  /** From cgroup files. */
  cpuTimeMs: number
  /** From cgroup files; page cache and tmpfs content included. */
  memoryPeakBytes: number
  /** Processes of this run that the kernel killed for memory, also when the main process lived on. */
  oomKills: number
  /** Bytes written to each stream, kept or not. */
  outputBytes: Record<Stream, number>
  limits: Limits
  timings: Timings
  /** Of a run with a thread whose code has started. */
  files?: ChangedFiles
  /** Of a run that showed some. */
  images?: ImageCounts
}

/**
 * What a reader of a run sees, in order. `seq` only grows; attaching after a seq continues exactly there.
 * Order is kept within each stream.
 */
export type RunEvent =
  | { kind: 'running'; seq: number }
  | { kind: 'output'; seq: number; stream: Stream; bytes: Uint8Array }
  /** So many bytes of this stream were dropped here, past the soft limit. */
  | { kind: 'gap'; seq: number; stream: Stream; bytes: number }
  | ({ kind: 'image'; seq: number } & ShownImage)
  | { kind: 'ended'; seq: number; result: RunResult }

/** Why a run is stopped from outside. */
export type CancelCause = 'cancelled' | 'shutdown'

/** Of a run whose limits nobody knows any more; zero stands for unknown. */
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

/** The result of a run of which nothing was measured: its code never started, or whoever measured is gone. */
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
