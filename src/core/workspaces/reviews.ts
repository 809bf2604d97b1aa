import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { HostWorkspace, Review } from '../../base/host-workspace.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import type { Caller } from '../caller.ts'
import type { SandboxLifecycle } from '../sandboxes/lifecycle.ts'
import { findSandbox } from '../sandboxes/sandbox-rows.ts'
import { sharedWith } from '../sandboxes/settings.ts'
import { defaultWorkspace } from './workspaces.ts'

/** The capability that each operation requires. */
export const reviewNeeds = {
  list: 'workspaces.read',
  changes: 'workspaces.read',
  settle: 'workspaces.review',
} as const

/** Time that the processes of a workspace get to end before its changes are applied or dropped. */
const stopGraceMs = 2_000

const nothing: Review = { changes: [], unsupported: [], isIncomplete: false }

/** Directories of the host that are workspaces, and the changes that those with the mode `review` keep. */
export class Reviews {
  readonly #lifecycle: SandboxLifecycle

  constructor(lifecycle: SandboxLifecycle) {
    this.#lifecycle = lifecycle
  }

  /** Returns the workspaces that the caller can use; only callers of development mode have some. */
  async list({ orgId }: Caller): Promise<readonly HostWorkspace[]> {
    return this.#known.filter(({ name }) => sharedWith({ orgId, namespace: 'default', name }, this.#known))
  }

  /**
   * Lists the changes of a workspace.
   * @param paths of changes, and of directories that contain them; absent: all.
   * @param withContent whether to return the content of small files.
   * @throws Refusal not_found, review_unavailable.
   */
  async changes(
    caller: Caller,
    name: string = defaultWorkspace,
    paths: readonly string[] | undefined = undefined,
    withContent = false,
  ): Promise<Review> {
    const workspace = await this.#reviewed(caller, name)
    const row = await this.#rowOf(caller, workspace)
    return row ? this.#ask(row, withContent ? 'diff' : 'list', paths) : nothing
  }

  /**
   * Applies changes to the directory of the host, or drops them. The sandbox of the workspace is stopped first; its next call
   * starts it again.
   * @returns the changes that were applied or dropped.
   * @throws Refusal not_found, review_unavailable, path_not_found, sandbox_busy.
   */
  async settle(
    caller: Caller,
    act: 'apply' | 'drop',
    name: string,
    paths: readonly string[] | undefined,
  ): Promise<Review> {
    const workspace = await this.#reviewed(caller, name)
    const row = await this.#rowOf(caller, workspace)
    if (row === undefined) return nothing
    await this.#lifecycle.stop(row, caller.keyId, stopGraceMs, 'review')
    const review = await this.#ask(row, act, paths)
    await this.#lifecycle.deps.store.audit.append({
      ...{ at: timestamp(), orgId: caller.orgId, actor: caller.keyId, action: `workspace.${act}`, target: name },
      ...{ details: { changes: review.changes.length }, personal: null, subject: null },
    })
    return review
  }

  get #known(): readonly HostWorkspace[] {
    return this.#lifecycle.deps.workspaces ?? []
  }

  async #reviewed(caller: Caller, name: string): Promise<HostWorkspace> {
    const workspace = (await this.list(caller)).find((known) => known.name === name)
    if (workspace?.mode === 'review') return workspace
    if (workspace) throw new Refusal('review_unavailable', { workspace: name, mode: workspace.mode })
    throw new Refusal('not_found', { what: `A directory of the host that is the workspace ${name.slice(0, 128)}` })
  }

  /** Returns its sandbox, if a call has created it. */
  async #rowOf(caller: Caller, { name }: HostWorkspace): Promise<SandboxRow | undefined> {
    try {
      return await findSandbox(this.#lifecycle.deps.store, caller, { name })
    } catch (error) {
      if (error instanceof Refusal && error.code === 'sandbox_unknown') return undefined
      throw error
    }
  }

  #ask(row: SandboxRow, act: 'list' | 'diff' | 'apply' | 'drop', paths: readonly string[] | undefined) {
    const { id: sandboxId, orgId, name: workspace } = row
    return this.#lifecycle.asked(row, () =>
      this.#lifecycle.deps.runner.review({ orgId, sandboxId, workspace, act }, paths),
    )
  }
}
