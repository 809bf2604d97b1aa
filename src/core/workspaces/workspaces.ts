import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Store } from '../../store/store.ts'
import type { NetworkSecrets } from '../access/network-secrets.ts'
import type { Caller } from '../caller.ts'
import { type AgentLink, type AgentReply, WorkspaceAgent } from './agent.ts'

/** The capability that each operation requires. */
export const workspaceNeeds = {
  read: 'workspaces.read',
  change: 'workspaces.write',
  secrets: 'workspaces.read',
  secret: 'workspaces.read',
} as const

/** One call of a workspace. */
export interface WorkspaceCall {
  /** Name of the workspace; absent: `defaultWorkspace`. */
  workspace?: string | undefined
  /** Whose reads and shell state apply; absent: those of the key. */
  reader?: string | undefined
  op: string
  args: Readonly<Record<string, unknown>>
  timeoutMs: number
}

export const defaultWorkspace = 'workspace'

/** A workspace that a call uses. */
export interface OpenWorkspace {
  /** Identifies the directory within one run of its sandbox: an agent serves one such directory. */
  readonly place: string
  startAgent(): Promise<AgentLink>
  /** Ends the use. Can be called twice. */
  close(): void
}

/** Where workspaces are. */
export interface WorkspaceHost {
  /**
   * Begins the use of a workspace, and creates or starts its sandbox.
   * @param use whether its files may be changed.
   * @throws Refusal invalid_argument and others.
   */
  open(caller: Caller, workspace: string, use: 'read' | 'write'): Promise<OpenWorkspace>
}

/**
 * Directories that coding agents work on. Each call is served by an agent, a process inside the sandbox of the workspace,
 * which is started with the first call and ends with the sandbox.
 */
export class Workspaces {
  readonly #host: WorkspaceHost
  readonly #store: Pick<Store, 'audit'>
  readonly #network: Pick<NetworkSecrets, 'availableOf'>
  readonly #log: Log
  readonly #agents = new Map<string, Promise<WorkspaceAgent>>()

  constructor(
    host: WorkspaceHost,
    store: Pick<Store, 'audit'>,
    network: Pick<NetworkSecrets, 'availableOf'>,
    log: Log,
  ) {
    this.#host = host
    this.#network = network
    this.#store = store
    this.#log = log
  }

  /** Number of agents that run. */
  get agents(): number {
    return this.#agents.size
  }

  /** Calls an operation that changes nothing. @throws Refusal of the sandbox, workspace_failed, workspace_busy. */
  read(caller: Caller, call: WorkspaceCall, signal: AbortSignal): Promise<AgentReply> {
    return this.#call(caller, call, 'read', signal)
  }

  /** Calls an operation that can change files or run programs. @throws Refusal as `read`, workspace_read_only. */
  async change(caller: Caller, call: WorkspaceCall, signal: AbortSignal): Promise<AgentReply> {
    if (caller.profile.calls.workspaceReadOnly) throw new Refusal('workspace_read_only')
    return this.#call(caller, call, 'write', signal)
  }

  /** Returns the names of the variables and secrets that the operator has set for this key and its profile. */
  async secrets(caller: Caller): Promise<readonly string[]> {
    return Object.keys(await this.#variablesOf(caller)).sort()
  }

  /**
   * Returns the value of a variable by its name, in any case, and writes an audit line. Of a secret for the network it is the
   * placeholder that programs send in its place.
   * @returns `undefined`: unknown.
   */
  async secret(caller: Caller, name: string): Promise<string | undefined> {
    const variables = await this.#variablesOf(caller)
    const found = Object.keys(variables).find((known) => known.toLowerCase() === name.toLowerCase())
    if (found === undefined) return undefined
    await this.#store.audit.append({
      ...{ at: timestamp(), orgId: caller.orgId, actor: caller.keyId, action: 'workspace.secret', target: found },
      ...{ details: { length: variables[found]!.length }, personal: null, subject: null },
    })
    return variables[found]
  }

  /** As programs of the caller see them. */
  async #variablesOf(caller: Caller): Promise<Readonly<Record<string, string>>> {
    const { env: placeholders } = await this.#network.availableOf(caller)
    return { ...placeholders, ...caller.profile.env, ...caller.env }
  }

  /** Ends all agents. */
  async close(): Promise<void> {
    const agents = [...this.#agents.values()]
    this.#agents.clear()
    await Promise.allSettled(agents.map(async (agent) => (await agent).close()))
  }

  async #call(caller: Caller, call: WorkspaceCall, use: 'read' | 'write', signal: AbortSignal): Promise<AgentReply> {
    const { workspace = defaultWorkspace, reader = caller.keyId, ...request } = call
    const open = await this.#host.open(caller, workspace, use)
    try {
      const agent = await this.#agentOf(open)
      return await agent.call(reader, request, signal)
    } finally {
      open.close()
    }
  }

  async #agentOf(open: OpenWorkspace): Promise<WorkspaceAgent> {
    const known = this.#agents.get(open.place)
    if (known && (await known).isOpen) return known
    // Several calls can find that there is no agent; one of them starts it.
    const current = this.#agents.get(open.place)
    if (current && current !== known) return current
    const starting = open.startAgent().then((link) => WorkspaceAgent.start(link))
    this.#agents.set(open.place, starting)
    const forget = () => {
      if (this.#agents.get(open.place) === starting) this.#agents.delete(open.place)
    }
    starting.then((agent) => agent.ended.then(forget), forget).catch((error: unknown) => fault(error, this.#log))
    return starting
  }
}
