import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { HostWorkspace } from '../../base/host-workspace.ts'
import { defaultImage } from '../../base/image.ts'
import { InTurn } from '../../base/in-turn.ts'
import type { RunThread } from '../../base/run.ts'
import type { SandboxCrash } from '../../base/sandbox.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import type { RunnerSandboxes } from '../../runner/protocol/sandboxes.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import type { Store } from '../../store/store.ts'
import type { NetworkSecrets } from '../access/network-secrets.ts'
import type { Vault } from '../access/vault.ts'
import type { Caller } from '../caller.ts'
import type { IdleHolder, ThreadLocks } from '../storage/thread-locks.ts'
import type { Volumes } from '../storage/volumes.ts'
import { SandboxActivity, type SandboxClock } from './activity.ts'
import type { Kernels } from './kernels/calls.ts'
import { openKernels } from './kernels/kernels.ts'
import { type Act, auditedChange, moveRow, systemActor } from './sandbox-rows.ts'
import { type SandboxRequest, type SandboxSettings, settingsOf, toRequestedRow, toSandboxSpec } from './settings.ts'
import type { SandboxChange } from './states.ts'

export interface SandboxDeps {
  store: Store
  runner: RunnerSandboxes
  threads: ThreadLocks
  volumes: Volumes
  /** Directories of the host that are workspaces; absent: none. */
  workspaces?: readonly HostWorkspace[]
  secrets: NetworkSecrets
  vault: Vault
  clock: SandboxClock
  metrics: Pick<Metrics, 'sandbox' | 'previews'>
  log: Log
}

/**
 * Changes the states of sandboxes. The row records an intent before the runner acts; after a crash, `SandboxWatch`
 * compares the rows with the runner. Changes of one sandbox take turns.
 */
export class SandboxLifecycle implements IdleHolder {
  readonly deps: SandboxDeps
  readonly activity: SandboxActivity
  readonly kernels: Kernels
  readonly #turns = new InTurn()
  /** Number of changes in progress or waiting, by sandbox. */
  readonly #changing = new Map<string, number>()

  constructor(deps: SandboxDeps) {
    this.deps = deps
    this.activity = new SandboxActivity(deps.clock)
    this.kernels = openKernels(deps.runner.processes, { states: deps.runner.states })
    deps.threads.idleHolder = this
  }

  /** Deletes a sandbox that has a thread, which something else needs; its disk holds nothing of value. */
  async giveUp(sandboxId: string): Promise<boolean> {
    const row = await this.deps.store.sandboxes.byId(sandboxId)
    // One that starts was started for a call.
    if (row === undefined || row.state === 'starting' || this.activity.of(row.id, 0).inUse) return false
    await this.remove(row, systemActor).catch((error: unknown) => {
      // Another call removes it at the same time.
      if (!(error instanceof Refusal && error.code === 'sandbox_unknown')) throw error
    })
    return true
  }

  /** Whether a change of this sandbox is in progress here. */
  isChanging(sandboxId: string): boolean {
    return this.#changing.has(sandboxId)
  }

  /** Starts a sandbox whose row has the state `starting`. @param isNew it is removed if it cannot be started. */
  launch(row: SandboxRow, caller: Caller, isNew: boolean): Promise<void> {
    return this.#inTurn(row.id, () => this.#launch(row, caller, isNew))
  }

  /** See `Sandboxes.start`. @param actor `system` for a start after a crash. */
  start(row: SandboxRow, caller: Caller, request: SandboxRequest = {}, actor = caller.keyId): Promise<void> {
    return this.#inTurn(row.id, async () => {
      const now = await this.#current(row)
      if (now.state === 'running' || now.state === 'starting') return
      if (now.state === 'paused') return this.#resume(now, actor)
      const isRestart = actor === systemActor
      const changes = {
        ...this.#newSettings(now, caller, request),
        ...{ keyId: caller.keyId, reason: null, startedAt: timestamp(), restarts: isRestart ? now.restarts + 1 : 0 },
      }
      await this.#change(now, { actor, action: 'start' }, 'start', changes)
      await this.#launch({ ...now, ...changes, state: 'starting' }, caller, false)
    })
  }

  stop(row: SandboxRow, actor: string, graceMs: number, reason: string | null = null): Promise<void> {
    return this.#inTurn(row.id, async () => {
      const now = await this.#current(row)
      if (now.state === 'stopped') return
      const details = { ...(reason !== null && { reason }) }
      const wasCrashed = now.state === 'crashed'
      // With the intent, for a front that has to complete it.
      await this.#change(now, { actor, action: 'stop', details }, 'stop', wasCrashed ? {} : { reason })
      if (!wasCrashed) await this.#completeStop(now, graceMs, reason)
    })
  }

  /** Completes a stop that an earlier front began. */
  finishStop(row: SandboxRow): Promise<void> {
    return this.#inTurn(row.id, () => this.#completeStop(row, 0, row.reason))
  }

  pause(row: SandboxRow, actor: string): Promise<void> {
    return this.#inTurn(row.id, async () => {
      const now = await this.#current(row)
      if (now.state === 'paused') return
      if (now.state !== 'running') throw notRunning(now)
      await this.asked(now, () => this.deps.runner.pause(now.id))
      await this.#change(now, { actor, action: 'pause' }, 'pause')
    })
  }

  resume(row: SandboxRow, actor: string): Promise<void> {
    return this.#inTurn(row.id, async () => {
      const now = await this.#current(row)
      if (now.state === 'running') return
      if (now.state !== 'paused') throw notRunning(now)
      await this.#resume(now, actor)
    })
  }

  remove(row: SandboxRow, actor: string): Promise<void> {
    return this.#inTurn(row.id, async () => {
      await this.#change(await this.#current(row), { actor, action: 'remove' }, 'remove')
      await this.settleRemoval(row)
    })
  }

  /** Erases the disk of a sandbox whose row has the state `removing`, then the row. @throws Refusal unavailable. */
  async settleRemoval({ orgId, id }: SandboxRow): Promise<void> {
    this.kernels.forget(id)
    await this.deps.runner.remove(orgId, id)
    await this.deps.store.sandboxes.remove(id)
    await this.deps.threads.freeOfSandbox(id)
  }

  /**
   * Makes the files of a sandbox accessible; of a stopped or crashed one for some seconds after their last use.
   * @param needs `running` refuses the files of one that is stopped.
   * @throws Refusal sandbox_not_running while it is paused or changes its state.
   */
  async openFiles(row: SandboxRow, caller: Caller, needs: 'running' | 'disk'): Promise<void> {
    if (row.state === 'running') return
    if (needs === 'running' || !hasRestingDisk(row)) throw notRunning(row)
    await this.#inTurn(row.id, async () => {
      const now = await this.#current(row)
      if (now.state === 'running') return
      if (!hasRestingDisk(now)) throw notRunning(now)
      const { runner, vault, volumes, workspaces } = this.deps
      const { network } = caller.profile
      // Secrets are for programs, which it gets when it is started.
      const withoutSecrets = { ...(network && { network }), env: {} }
      const spec = toSandboxSpec(now, vault, withoutSecrets, await volumes.mountedBy(caller), workspaces)
      await this.asked(now, () => runner.openFiles(spec))
    })
  }

  extend(row: SandboxRow, actor: string, settings: SandboxSettings): Promise<void> {
    return this.#inTurn(row.id, async () => {
      const { idleTimeoutMs, lifetimeMs } = settings
      const act: Act = { actor, action: 'extend', details: { idle_timeout_ms: idleTimeoutMs, lifetime_ms: lifetimeMs } }
      const changes = { settings: JSON.stringify(settings), expiresAt: this.#endOf(settings) }
      await auditedChange(this.deps.store, row, act, ({ sandboxes }) => sandboxes.update(row.id, changes))
      this.activity.begin(row.id)()
    })
  }

  /** Records that a sandbox crashed. @param startedAtMs start that the crash belongs to; a later one is not affected. */
  crashed(
    row: SandboxRow,
    reason: SandboxCrash | 'interrupted',
    startedAtMs = Number.POSITIVE_INFINITY,
  ): Promise<void> {
    return this.#inTurn(row.id, async () => {
      const now = await this.deps.store.sandboxes.byId(row.id)
      if (now === undefined || Date.parse(now.startedAt ?? now.createdAt) > startedAtMs) return
      const act: Act = { actor: systemActor, action: 'crash', details: { reason } }
      const isCrash = await auditedChange(this.deps.store, now, act, (rows) =>
        moveRow(rows, now.id, 'crash', { reason, endedAt: timestamp() }),
      )
      if (!isCrash) return
      this.#loseKernels(now, `the sandbox crashed (${reason})`)
      await this.#freeThread(now)
      this.deps.metrics.sandbox('crash')
      this.deps.log.warn({ sandbox_id: now.id, org_id: now.orgId, reason }, 'sandbox crashed')
    })
  }

  /**
   * Calls the runner about a sandbox.
   * @throws Refusal sandbox_not_running instead of refusals that name the sandbox by its ID.
   */
  async asked<Result>(row: SandboxRow, call: () => Promise<Result>): Promise<Result> {
    try {
      return await call()
    } catch (error) {
      throw toNamed(error, row)
    }
  }

  async #launch(row: SandboxRow, caller: Caller, isNew: boolean): Promise<void> {
    const { runner, vault, volumes, secrets, workspaces } = this.deps
    try {
      const opened = await secrets.networkOf(caller, settingsOf(row).secrets)
      const mounted = await volumes.ofRun(caller, row.image ?? defaultImage)
      const thread = await this.#lockThread(row, caller)
      await runner.start(toSandboxSpec(row, vault, opened, mounted, workspaces, thread))
    } catch (error) {
      await this.#freeThread(row)
      this.deps.metrics.sandbox('failed_start')
      if (isNew) {
        await this.#moved(row, 'remove')
        await this.settleRemoval(row).catch((failure: unknown) => this.#report(failure))
      } else await this.#moved(row, 'failed', { reason: 'not_started', endedAt: timestamp() })
      throw toNamed(error, row)
    }
    this.deps.metrics.sandbox('start')
    this.activity.begin(row.id)()
    await this.#moved(row, 'started', { reason: null, expiresAt: this.#endOf(settingsOf(row)) })
  }

  /** @throws Refusal thread_busy, threads_unavailable, limit_reached. */
  async #lockThread(row: SandboxRow, { profile }: Caller): Promise<RunThread | undefined> {
    const { thread: id } = settingsOf(row)
    if (id === undefined) return undefined
    if (profile.storage.kind === 'none') throw new Refusal('threads_unavailable')
    const asked = { id, quota: profile.storage.quota, profile: profile.name }
    return this.deps.threads.lockForSandbox({ orgId: row.orgId, sandboxId: row.id }, asked)
  }

  async #freeThread(row: SandboxRow): Promise<void> {
    if (settingsOf(row).thread !== undefined) await this.deps.threads.freeOfSandbox(row.id)
  }

  async #resume(row: SandboxRow, actor: string): Promise<void> {
    await this.asked(row, () => this.deps.runner.resume(row.id))
    this.activity.begin(row.id)()
    await this.#change(row, { actor, action: 'resume' }, 'resume')
  }

  /** The disk can only grow: files that are there must continue to fit. */
  #newSettings(row: SandboxRow, caller: Caller, request: SandboxRequest) {
    if (Object.values(request).every((value) => value === undefined)) return {}
    const secrets = request.secrets ?? settingsOf(row).secrets?.filter((name) => caller.profile.secrets?.includes(name))
    const wanted = toRequestedRow(caller, row.id, { ...request, secrets }, this.deps.vault)
    const { quotaBytes, quotaFiles, image } = row
    return {
      ...wanted,
      // The disk holds what differs from its image.
      image,
      quotaBytes: Math.max(quotaBytes, wanted.quotaBytes),
      quotaFiles: Math.max(quotaFiles, wanted.quotaFiles),
    }
  }

  #endOf({ lifetimeMs }: SandboxSettings): string | null {
    return lifetimeMs === null ? null : new Date(this.deps.clock.nowMs() + lifetimeMs).toISOString()
  }

  #loseKernels({ id, startedAt, createdAt }: SandboxRow, reason: string): void {
    this.kernels.lose(id, reason, Date.parse(startedAt ?? createdAt))
  }

  /** @param reason `null` if a caller wanted it. */
  async #completeStop(row: SandboxRow, graceMs: number, reason: string | null): Promise<void> {
    await this.#stopOnRunner(row, graceMs)
    if (reason === null) this.kernels.forget(row.id)
    else this.#loseKernels(row, `the sandbox was stopped (${reason})`)
    await this.#moved(row, 'stopped', { reason, endedAt: timestamp() })
    await this.#freeThread(row)
  }

  async #stopOnRunner(row: SandboxRow, graceMs: number): Promise<void> {
    try {
      await this.deps.runner.stop(row.id, graceMs)
    } catch (error) {
      if (!(error instanceof Refusal && isAboutState(error))) throw error
      // It had stopped or crashed by itself.
    }
  }

  /** Changes the state with an audit line. @throws Refusal sandbox_busy if the change is not possible. */
  #change(row: SandboxRow, act: Act, change: SandboxChange, changes: Parameters<typeof moveRow>[3] = {}) {
    return auditedChange(this.deps.store, row, act, async (rows) => {
      if (!(await moveRow(rows, row.id, change, changes))) throw new Refusal('sandbox_busy', { sandbox: row.name })
    })
  }

  /** Records a change that has happened. */
  async #moved(row: SandboxRow, change: SandboxChange, changes: Parameters<typeof moveRow>[3] = {}): Promise<void> {
    await moveRow(this.deps.store, row.id, change, changes)
  }

  /** @throws Refusal sandbox_unknown if it was removed meanwhile. */
  async #current({ id, name, namespace }: SandboxRow): Promise<SandboxRow> {
    const row = await this.deps.store.sandboxes.byId(id)
    if (row === undefined || row.state === 'removing')
      throw new Refusal('sandbox_unknown', { sandbox: name, namespace })
    return row
  }

  async #inTurn<Result>(sandboxId: string, work: () => Promise<Result>): Promise<Result> {
    this.#changing.set(sandboxId, (this.#changing.get(sandboxId) ?? 0) + 1)
    try {
      return await this.#turns.run(sandboxId, work)
    } finally {
      const left = (this.#changing.get(sandboxId) ?? 1) - 1
      if (left === 0) this.#changing.delete(sandboxId)
      else this.#changing.set(sandboxId, left)
    }
  }

  #report(error: unknown): void {
    // While no runner is connected the removal waits for `SandboxWatch`.
    if (!(error instanceof Refusal)) fault(error, this.deps.log)
  }
}

export const notRunning = ({ name, state }: SandboxRow): Refusal =>
  new Refusal('sandbox_not_running', { sandbox: name, state })

const hasRestingDisk = ({ state }: SandboxRow): boolean => state === 'stopped' || state === 'crashed'

const isAboutState = ({ code }: Refusal): boolean => code === 'sandbox_unknown' || code === 'sandbox_not_running'

/** Returns a refusal of the runner in the words of the caller, who does not know the ID. */
function toNamed(error: unknown, row: SandboxRow): Error {
  if (!(error instanceof Refusal)) return error as Error
  switch (error.code) {
    case 'sandbox_unknown':
    case 'sandbox_not_running':
      return new Refusal('sandbox_not_running', { sandbox: row.name, state: 'not running' })
    case 'sandbox_busy':
      return new Refusal('sandbox_busy', { sandbox: row.name })
    default:
      return error
  }
}
