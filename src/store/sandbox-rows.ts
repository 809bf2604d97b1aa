/** Rows of named sandboxes. */

/** States of a row. `removing`: its disk is being erased. */
export const sandboxStates = ['starting', 'running', 'paused', 'stopping', 'stopped', 'crashed', 'removing'] as const
export type SandboxRowState = (typeof sandboxStates)[number]

/** States in which a sandbox uses memory of the machine. */
export const liveStates: readonly SandboxRowState[] = ['starting', 'running', 'paused', 'stopping']

export interface SandboxRow {
  /** Public ID; also names its disk on the runner. */
  id: string
  orgId: string
  namespace: string
  name: string
  /** The key that started it last. */
  keyId: string
  state: SandboxRowState
  /** Why it stopped or crashed by itself; `null` if it did not. */
  reason: string | null
  image: string | null
  memoryBytes: number
  /** Quota of its disk. */
  quotaBytes: number
  quotaFiles: number
  /** All other settings, as JSON. */
  settings: string
  /** Its variables, sealed; `null` for none. */
  env: string | null
  /** Metadata of the caller, as JSON. */
  metadata: string
  createdAt: string
  startedAt: string | null
  /** Time of the last stop or crash. */
  endedAt: string | null
  lastUsedAt: string
  /** End of its lifetime; `null` for none. */
  expiresAt: string | null
  /** Automatic starts after crashes, since a caller last started it. */
  restarts: number
}

/** Which sandboxes of an organization a list contains. */
export interface SandboxFilter {
  /** `null`: all. */
  namespaces: readonly string[] | null
  states: readonly SandboxRowState[] | null
}

type Changes = Partial<Omit<SandboxRow, 'id' | 'orgId' | 'namespace' | 'name' | 'createdAt'>>

export interface SandboxRows {
  /**
   * Inserts a sandbox. Must be called in a transaction, as every method that makes a sandbox start.
   * @returns `false` if the name is taken.
   * @throws Refusal limit_reached, sandboxes_full.
   */
  create(row: SandboxRow): Promise<boolean>
  get(orgId: string, namespace: string, name: string): Promise<SandboxRow | undefined>
  byId(id: string): Promise<SandboxRow | undefined>
  /** Lists sandboxes by namespace and name. */
  page(
    orgId: string,
    filter: SandboxFilter,
    after: { namespace: string; name: string },
    limit: number,
  ): Promise<SandboxRow[]>
  /** Lists the sandboxes of all organizations in these states. */
  inStates(states: readonly SandboxRowState[]): Promise<SandboxRow[]>
  /**
   * Changes the state if it is one of `from`.
   * @returns whether this call changed it.
   * @throws Refusal limit_reached if it starts beyond a limit.
   */
  move(id: string, from: readonly SandboxRowState[], to: SandboxRowState, changes?: Changes): Promise<boolean>
  update(id: string, changes: Changes): Promise<void>
  remove(id: string): Promise<void>
  quotaBytes(orgId: string): Promise<number>
  /** Adds running time to the usage of keys. */
  addUsage(day: string, runMs: readonly { orgId: string; keyId: string; sandboxMs: number }[]): Promise<void>
}
