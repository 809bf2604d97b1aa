import { Refusal } from '../../base/errors.ts'
import type { Rights } from '../access/rights.ts'
import type { Caller } from '../caller.ts'
import type { SandboxLifecycle } from '../sandboxes/lifecycle.ts'
import type { SandboxRef } from '../sandboxes/names.ts'
import { type OpenSandbox, openSandbox } from '../sandboxes/open-sandbox.ts'
import { Sandboxes } from '../sandboxes/sandboxes.ts'
import type { SandboxRequest } from '../sandboxes/settings.ts'
import { SandboxAgents } from './sandbox-agents.ts'
import { StorageSandboxes } from './storage-sandboxes.ts'
import { readWorkspaceName } from './workspace-names.ts'
import type { OpenWorkspace, WorkspaceHost } from './workspaces.ts'

/** Where a workspace is: a directory of a sandbox, which is created with the request. */
export interface WorkspacePlace {
  ref: SandboxRef
  request: SandboxRequest
  /** Absent: the working directory of the sandbox. */
  directory: string | undefined
  /** Called before the sandbox is started. @throws Refusal if it cannot be started now. */
  beforeStart?(): Promise<void>
}

/** Of a sandbox that something else ended after it was started. */
const attemptsMax = 3

/**
 * Workspaces in named sandboxes: a sandbox of the name of the workspace, or one of its own for a thread or volume. It is
 * created with the first call.
 */
export class SandboxHost implements WorkspaceHost {
  readonly #lifecycle: SandboxLifecycle
  readonly #sandboxes: Sandboxes
  readonly #agents = new SandboxAgents()
  readonly #storage: StorageSandboxes

  constructor(lifecycle: SandboxLifecycle, rights: Pick<Rights, 'require'>) {
    this.#lifecycle = lifecycle
    this.#sandboxes = new Sandboxes(lifecycle)
    this.#storage = new StorageSandboxes(lifecycle.deps.threads, rights)
  }

  async open(caller: Caller, workspace: string, use: 'read' | 'write'): Promise<OpenWorkspace> {
    const place = await this.#placeOf(caller, workspace, use)
    const { row, processes, close } = await this.#running(caller, place)
    return {
      place: `${row.id} ${row.startedAt} ${place.directory ?? ''}`,
      startAgent: () => this.#agents.start(processes, row.id, place.directory),
      close,
    }
  }

  async #placeOf(caller: Caller, workspace: string, use: 'read' | 'write'): Promise<WorkspacePlace> {
    const named = readWorkspaceName(workspace)
    switch (named.kind) {
      case 'sandbox':
        return { ref: named.ref, request: {}, directory: named.directory }
      case 'thread':
        return this.#storage.ofThread(caller, named, use)
      case 'volume':
        return this.#storage.ofVolume(caller, named, use)
    }
  }

  async #running(caller: Caller, { ref, request, beforeStart }: WorkspacePlace): Promise<OpenSandbox> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await openSandbox(this.#lifecycle, caller, ref)
      } catch (error) {
        if (!(error instanceof Refusal) || !startable.has(error.code) || attempt > attemptsMax) throw error
      }
      await beforeStart?.()
      await this.#sandboxes.ensure(caller, ref, request)
    }
  }
}

const startable: ReadonlySet<string> = new Set(['sandbox_unknown', 'sandbox_not_running'])
