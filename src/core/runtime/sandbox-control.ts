import { Refusal } from '../../base/errors.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import type { Caller } from '../caller.ts'
import type { SandboxLifecycle } from '../sandboxes/lifecycle.ts'

/** Why a sandbox has stopped, as its row says. */
const reason = 'operator'
const graceMs = 10_000

/** What administrators of the instance do to the named sandboxes of all organizations. */
export class SandboxControl {
  readonly #lifecycle: SandboxLifecycle
  readonly #callerOf: (keyId: string) => Promise<Caller>

  /** @param callerOf returns the caller of a key; rejects with a refusal for one that is no longer valid. */
  constructor(lifecycle: SandboxLifecycle, callerOf: (keyId: string) => Promise<Caller>) {
    this.#lifecycle = lifecycle
    this.#callerOf = callerOf
  }

  find(sandboxId: string): Promise<SandboxRow | undefined> {
    return this.#lifecycle.deps.store.sandboxes.byId(sandboxId)
  }

  /** Stops a sandbox. Its disk is kept. @param actor ID of the token. @throws Refusal `not_found`. */
  async stop(sandboxId: string, actor: string): Promise<void> {
    await this.#lifecycle.stop(await this.#row(sandboxId), actor, graceMs, reason)
  }

  /**
   * Stops a sandbox, and starts it again with its disk, settings and key.
   * @throws Refusal `not_found`, and those of a start: its key must be valid.
   */
  async restart(sandboxId: string, actor: string): Promise<void> {
    const row = await this.#row(sandboxId)
    // Before anything stops: a sandbox of a revoked key could not be started again.
    const caller = await this.#callerOf(row.keyId)
    await this.#lifecycle.stop(row, actor, graceMs, reason)
    await this.#lifecycle.start(row, caller, {}, actor)
  }

  /** Ends the contexts of a sandbox, in which code keeps its state. @returns their number. @throws Refusal `not_found`. */
  async endContexts(sandboxId: string): Promise<number> {
    const { id } = await this.#row(sandboxId)
    const { kernels } = this.#lifecycle
    const contexts = await kernels.list(id)
    const removed = await Promise.all(contexts.map((context) => kernels.remove(id, context.id)))
    return removed.filter(Boolean).length
  }

  async #row(sandboxId: string): Promise<SandboxRow> {
    const row = await this.find(sandboxId)
    if (row === undefined) throw new Refusal('not_found', { what: `The sandbox ${sandboxId.slice(0, 64)}` })
    return row
  }
}
