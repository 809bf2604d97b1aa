import { BackgroundJob, type Timers } from '../../base/background-job.ts'
import { Refusal } from '../../base/errors.ts'
import type { SandboxStatus } from '../../base/sandbox.ts'
import { fault } from '../../observe/log.ts'
import { liveStates, type SandboxRow } from '../../store/sandbox-rows.ts'
import type { SandboxDeps, SandboxLifecycle } from './lifecycle.ts'
import { recordNetwork } from './network-audit.ts'

/** Pause before the runner is asked again after it was lost. */
const reconnectMs = 250

/**
 * Keeps the rows of sandboxes equal to what the runner has. It compares all of them when a front starts or a runner
 * connects, and follows changes from then on. A sandbox that the runner no longer has is recorded as crashed.
 */
export class SandboxWatch {
  readonly #lifecycle: SandboxLifecycle
  readonly #deps: SandboxDeps
  readonly #job: BackgroundJob
  #changes: AsyncIterator<SandboxStatus, void, undefined> | undefined

  constructor(lifecycle: SandboxLifecycle, timers?: Timers) {
    this.#lifecycle = lifecycle
    this.#deps = lifecycle.deps
    this.#job = new BackgroundJob({
      everyMs: reconnectMs,
      retryMs: reconnectMs,
      retryMaxMs: 1_000,
      work: (signal) => this.#follow(signal),
      // While no runner is connected, it refuses.
      onFault: (error) => error instanceof Refusal || fault(error, lifecycle.deps.log),
      ...(timers && { timers }),
    })
  }

  start(): void {
    void this.#job.run()
  }

  async stop(): Promise<void> {
    const stopped = this.#job.stop()
    await this.#changes?.return?.()
    await stopped
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const changes = this.#deps.runner.changes()
    this.#changes = changes
    // Changes from before the list is read wait here.
    const first = changes.next()
    first.catch(() => {})
    await this.reconcile(await this.#deps.runner.list())
    for (let next = await first; !next.done && !signal.aborted; next = await changes.next()) {
      await this.#apply(next.value)
    }
  }

  /** Compares all rows with the sandboxes of the runner. */
  async reconcile(statuses: readonly SandboxStatus[]): Promise<void> {
    const onRunner = new Map(statuses.map((status) => [status.sandboxId, status]))
    const rows = await this.#deps.store.sandboxes.inStates([...liveStates, 'removing'])
    for (const row of rows) {
      if (this.#lifecycle.isChanging(row.id)) continue
      if (row.state === 'removing') await this.#lifecycle.settleRemoval(row)
      else await this.#compare(row, onRunner.get(row.id))
    }
    const known = new Set(rows.map(({ id }) => id))
    for (const status of statuses) {
      if (!known.has(status.sandboxId) && !this.#lifecycle.isChanging(status.sandboxId)) await this.#tidy(status)
    }
  }

  async #compare(row: SandboxRow, status: SandboxStatus | undefined): Promise<void> {
    if (status === undefined) {
      // It stopped while no front could record it.
      if (row.state === 'stopping') return this.#lifecycle.finishStop(row)
      await this.#lifecycle.crashed(row, row.state === 'starting' ? 'interrupted' : 'runner_lost')
      return
    }
    const { kind } = status.state
    const { sandboxes } = this.#deps.store
    switch (kind) {
      case 'crashed':
        return this.#lifecycle.crashed(row, status.state.reason)
      case 'stopped':
        return this.#lifecycle.finishStop(row)
      case 'running':
        // A front that ended meanwhile could not record the change.
        if (row.state === 'stopping') return this.#lifecycle.finishStop(row)
        await sandboxes.move(row.id, ['starting', 'paused'], 'running')
        return
      case 'paused':
        if (row.state === 'stopping') return this.#lifecycle.finishStop(row)
        await sandboxes.move(row.id, ['starting', 'running'], 'paused')
        return
      case 'starting':
      case 'stopping':
        // Its next change is reported.
        return
    }
  }

  /** Ends a sandbox that should not run: its row is gone, or says that it has ended. */
  async #tidy({ sandboxId, orgId, state }: SandboxStatus): Promise<void> {
    // Those of upstreams are kept by `UpstreamPrograms`.
    const { upstreamSandboxes, packageLayers } = this.#deps.store
    if ((await upstreamSandboxes.byId(sandboxId)) !== undefined) return
    // Those that install packages by `PackageLayers`.
    if ((await packageLayers.byId(sandboxId)) !== undefined) return
    const row = await this.#deps.store.sandboxes.byId(sandboxId)
    if (row === undefined) await this.#deps.runner.remove(orgId, sandboxId)
    else if (state.kind !== 'crashed' && !liveStates.includes(row.state)) await this.#deps.runner.stop(sandboxId, 0)
  }

  /** Changes that were requested here are recorded where they were; those that sandboxes make by themselves are crashes. */
  async #apply(status: SandboxStatus): Promise<void> {
    const { sandboxId, state, startedAt } = status
    if (status.network) await recordNetwork(this.#deps.store, status, status.network)
    const row = await this.#deps.store.sandboxes.byId(sandboxId)
    if (row === undefined || !liveStates.includes(row.state)) return
    if (state.kind === 'crashed') await this.#lifecycle.crashed(row, state.reason, startedAt)
    else if (this.#lifecycle.isChanging(sandboxId)) return
    // Changes that a front before this one requested.
    else if (state.kind === 'stopped') await this.#lifecycle.finishStop(row)
    else if (state.kind === 'running' && row.state === 'starting') {
      await this.#deps.store.sandboxes.move(sandboxId, ['starting'], 'running')
    }
  }
}
