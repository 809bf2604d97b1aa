import type { Language, Limits, Quota, Reuse } from './run.ts'

/** What runs of a profile may keep. */
export type Storage =
  | { kind: 'none' }
  /** A thread is made with this quota; one with less grows to it when it is next mounted, none shrinks. */
  | {
      kind: 'threads'
      quota: Quota
      /** One that was not used for so long is removed; `null`: never. */
      retentionDays: number | null
    }

/** A volume that every run has at `/volumes/<slug>`. */
export interface MountedVolume {
  slug: string
  mode: 'ro' | 'rw'
}

/** Groups of tools: what a profile allows and a client narrows. */
export const toolsets = ['execute', 'files', 'executions'] as const
export type Toolset = (typeof toolsets)[number]

/** What a call is told whose thread is running something else: an error, a result that the model sees, or nothing yet. */
export const busyAnswers = ['refuse', 'result', 'wait'] as const
export type BusyAnswer = (typeof busyAnswers)[number]

/** How the calls of a key are answered; what runs is not touched by it. */
export interface CallPolicy {
  /** Everything that a client may be shown; it sees less unless it asks. */
  toolsets: readonly Toolset[]
  /** A run that still goes on after so long is answered with what it printed so far, and goes on by itself. */
  detachAfterMs: number | null
  onBusyThread: BusyAnswer
  /** How long `wait` waits before it refuses. */
  busyWaitMs: number
  /** Where the ending of a run is told that names no address itself. */
  webhookUrl: string | null
}

/** What a key may run: made from the configuration at start, the same for every run until the next start. */
export interface Profile {
  name: string
  /** Hash of everything below; a slot never serves two revisions. */
  revision: string
  languages: readonly Language[]
  /** Used when a call names none; one of `languages`. */
  defaultLanguage: Language
  timeoutDefaultMs: number
  timeoutMaxMs: number
  limits: Omit<Limits, 'timeoutMs'>
  /** Variables of every run; those of a call win over them. */
  env: Readonly<Record<string, string>>
  reuse: Reuse
  /** Modules of Python that are imported before a run needs them. */
  preload: readonly string[]
  calls: CallPolicy
  storage: Storage
  /** Of the org that a key belongs to, each slug once. */
  volumes: readonly MountedVolume[]
}
