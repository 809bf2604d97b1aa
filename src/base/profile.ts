import type { JailNetwork } from './network.ts'
import type { ProfilePackages } from './packages.ts'
import type { Language, Limits, Quota, Reuse } from './run.ts'

/** Which files the runs of a profile can keep. */
export type Storage =
  | { kind: 'none' }
  /** The quota of new threads. A smaller thread grows to it when it is next mounted; threads never shrink. */
  | {
      kind: 'threads'
      quota: Quota
      /** Threads that were not used for this time are deleted; `null`: never. */
      retentionDays: number | null
    }

/** A volume that is mounted in every run at `/volumes/<slug>`. */
export interface MountedVolume {
  slug: string
  mode: 'ro' | 'rw'
}

/** Groups of tools: a profile allows them, a client can select fewer. */
export const toolsets = ['execute', 'files', 'executions', 'sandbox', 'workspace'] as const
/** Offered to admin tokens of the instance alone: no profile can allow it. */
export const adminToolset = 'runtime'
export type Toolset = (typeof toolsets)[number] | typeof adminToolset

/** Toolsets that a client gets only if it selects them: their tools would distract a model that does not need them. */
export const selectedToolsets: readonly Toolset[] = ['sandbox', 'workspace']

/** What the named sandboxes of a key may use. */
export interface SandboxPolicy {
  memoryMaxBytes: number
  cpusMax: number
  /** Disk of a sandbox that does not set its own. */
  disk: Quota
  diskMaxBytes: number
  /** Time without calls after which a sandbox stops that does not set its own; `null`: never. */
  idleMs: number | null
  /** Longest time from a start to its end; `null`: unlimited. */
  lifetimeMaxMs: number | null
}

/** How a call on a busy thread is handled: an error, a result that the model sees, or waiting. */
export const busyAnswers = ['refuse', 'result', 'wait'] as const
export type BusyAnswer = (typeof busyAnswers)[number]

/** How calls are answered; it does not affect the run itself. */
export interface CallPolicy {
  /** All toolsets that a client can select. */
  toolsets: readonly Toolset[]
  /** After this time a call returns the partial output, and the run continues in the background. */
  detachAfterMs: number | null
  onBusyThread: BusyAnswer
  /** Results over MCP contain `structuredContent`, and tools declare an `outputSchema`. */
  structuredResults: boolean
  /** Over MCP, a run that exits with another code than 0 is an error result. */
  exitCodeIsError: boolean
  /** Characters of output, over both streams, that a call over MCP returns. */
  mcpOutputCharacters: number
  /** Secrets are removed from the results of all tools; those of the workspace never contain any. */
  redactOutput: boolean
  /** `/mcp` offers what upstreams do too, as `/v1/mcp` always does. */
  upstreamsInMcp: boolean
  /** Workspaces can be read and searched, and nothing else. */
  workspaceReadOnly: boolean
  /** How long `wait` waits before it returns an error. */
  busyWaitMs: number
  /** The webhook address for runs that do not specify one. */
  webhookUrl: string | null
}

/** What a key can run. */
export interface Profile {
  name: string
  /** Hash of all fields below; a slot serves only one revision. */
  revision: string
  languages: readonly Language[]
  /** The image of its runs. */
  image: string
  /** The language of calls that do not specify one; one of `languages`. */
  defaultLanguage: Language
  timeoutDefaultMs: number
  timeoutMaxMs: number
  limits: Omit<Limits, 'timeoutMs'>
  /** Variables of every run; the variables of a call override them. */
  env: Readonly<Record<string, string>>
  reuse: Reuse
  /** Python modules that are imported in advance. */
  preload: readonly string[]
  calls: CallPolicy
  storage: Storage
  sandboxes: SandboxPolicy
  /** Volumes of the organization of the key; slugs are unique. */
  volumes: readonly MountedVolume[]
  /** What its runs can reach; absent: nothing. */
  network?: JailNetwork
  /** Names of secrets that its network has; absent: none. */
  secrets?: readonly string[]
  /** Packages that its runs find beside those of the image; absent: none. */
  packages?: ProfilePackages
  /** Organizations that may use it, where it is a profile of the configuration; none: all. */
  orgs: readonly string[]
}
