import { isDeepStrictEqual } from 'node:util'
import { Refusal } from '../../base/errors.ts'
import type { Review } from '../../base/host-workspace.ts'
import type { SandboxFigures, SandboxSpec, SandboxStatus } from '../../base/sandbox.ts'
import type { Log } from '../../observe/log.ts'
import type { FilesystemId } from '../../storage/filesystem-id.ts'
import type { ReviewRequest } from '../protocol/sandboxes.ts'
import { Sandbox } from './sandbox.ts'
import type { SandboxHost } from './sandbox-host.ts'

/** Crashed sandboxes that are remembered until they are started again or removed. */
const crashedMax = 1_000
/** Sandboxes that ended while no front was connected, whose connections are kept for the next one. */
const unreadMax = 1_000

export interface SandboxesSettings {
  /** Sandboxes at once; each has a slot. 0: none. */
  max: number
}

/** The sandboxes of this runner. */
export class Sandboxes {
  readonly #settings: SandboxesSettings
  readonly #host: SandboxHost | undefined
  readonly #log: Log
  readonly #sandboxes = new Map<string, Sandbox>()
  /** By id: one is started or removed by one caller at a time. None of these rejects. */
  readonly #changing = new Map<string, Promise<void>>()
  readonly #listeners = new Set<(status: SandboxStatus) => void>()
  /** Of those that ended with connections while no front was connected. */
  readonly #unread: SandboxStatus[] = []
  #closed = false

  /** @param host absent if the runner has no storage, which every sandbox needs. */
  constructor(settings: SandboxesSettings, host: SandboxHost | undefined, log: Log) {
    this.#settings = settings
    this.#host = host
    this.#log = log
  }

  /**
   * Starts one; idempotent by its id. Resolves when it is running.
   * @throws Refusal sandbox_busy while it stops, sandbox_failed, image_unknown, storage_unavailable, unavailable.
   */
  async start(spec: SandboxSpec): Promise<void> {
    const first = this.#sandboxes.get(spec.sandboxId)
    if (first && first.spec.orgId !== spec.orgId) throw unknown(spec.sandboxId)
    // Its files were used, with the settings that it had; it is to run with others.
    if (first && !first.isReported && !isDeepStrictEqual(first.spec, spec)) await first.stop(0)
    const known = await this.#afterFiles(spec.sandboxId)
    switch (known?.state.kind) {
      case 'running':
      case 'paused':
        known?.report()
        return
      case 'starting':
        await this.#starting.get(spec.sandboxId)
        known?.report()
        return
      case 'stopping':
        throw new Refusal('sandbox_busy', { sandbox: spec.sandboxId })
      case 'crashed':
      case 'stopped':
      case undefined:
        return this.#begin(spec, false)
    }
  }

  /** Returns a sandbox, after one whose files are no longer used has ended. */
  async #afterFiles(sandboxId: string): Promise<Sandbox | undefined> {
    const known = this.#sandboxes.get(sandboxId)
    if (known?.isReported === false && known.state.kind === 'stopping') await known.ended
    return this.#sandboxes.get(sandboxId)
  }

  #begin(spec: SandboxSpec, forFiles: boolean): Promise<void> {
    const starting = this.#start(spec, forFiles).finally(() => this.#starting.delete(spec.sandboxId))
    this.#starting.set(spec.sandboxId, starting)
    return starting
  }

  readonly #starting = new Map<string, Promise<void>>()

  async #start(spec: SandboxSpec, forFiles: boolean): Promise<void> {
    if (!this.#host) throw new Refusal('storage_unavailable')
    if (this.#closed) throw new Refusal('unavailable', { reason: 'the runner is stopping' })
    if (this.#changing.has(spec.sandboxId)) throw new Refusal('sandbox_busy', { sandbox: spec.sandboxId })
    const active = [...this.#sandboxes.values()].filter(({ state }) => state.kind !== 'crashed').length
    if (active >= this.#settings.max) throw new Refusal('unavailable', { reason: placesTaken(this.#settings.max) })
    const sandbox = new Sandbox(spec, this.#host, !forFiles, (changed) => this.#changed(changed))
    this.#sandboxes.delete(spec.sandboxId) // A crashed one; the new one is the latest.
    this.#sandboxes.set(spec.sandboxId, sandbox)
    this.#changed(sandbox)
    await sandbox.start()
  }

  /** @throws Refusal sandbox_not_running, sandbox_busy. */
  async stop(sandboxId: string, graceMs: number): Promise<void> {
    await this.#starting.get(sandboxId)?.catch(() => undefined)
    const sandbox = this.#sandboxes.get(sandboxId)
    if (!sandbox) throw notRunning(sandboxId)
    if (sandbox.state.kind === 'crashed') this.#sandboxes.delete(sandboxId)
    else await sandbox.stop(graceMs)
  }

  /** Erases the disk. @returns whether there was one. */
  async remove(orgId: string, sandboxId: string): Promise<boolean> {
    if (!this.#host) return false
    await this.#starting.get(sandboxId)?.catch(() => undefined)
    const sandbox = this.#sandboxes.get(sandboxId)
    if (sandbox && sandbox.spec.orgId !== orgId) return false
    const id: FilesystemId = { area: 'sandboxes', org: orgId, name: sandboxId }
    const { mounts } = this.#host.storage
    const removing = (async () => {
      await sandbox?.stop(0)
      this.#sandboxes.delete(sandboxId)
      return mounts.remove(id)
    })()
    this.#keepStopped(sandboxId, removing)
    return removing
  }

  /** @throws Refusal sandbox_not_running. */
  get(sandboxId: string): Sandbox {
    const sandbox = this.#sandboxes.get(sandboxId)
    if (!sandbox) throw notRunning(sandboxId)
    return sandbox
  }

  list(): SandboxStatus[] {
    return [...this.#sandboxes.values()].filter(({ isReported }) => isReported).map((sandbox) => sandbox.status)
  }

  /**
   * Makes the files of a stopped sandbox accessible, for a few seconds after their last use.
   * @throws Refusal as `start` does.
   */
  async openFiles(spec: SandboxSpec): Promise<void> {
    const known = await this.#afterFiles(spec.sandboxId)
    if (known === undefined || known.state.kind === 'crashed') await this.#begin(spec, true)
    else await this.#starting.get(spec.sandboxId)
    this.useFiles(spec.sandboxId)()
  }

  /** Keeps the files of a sandbox accessible. @returns a function that ends this. @throws Refusal sandbox_not_running. */
  useFiles(sandboxId: string): () => void {
    return this.get(sandboxId).useFiles(() => void this.stop(sandboxId, 0).catch(() => undefined))
  }

  figures(sandboxIds: readonly string[]): Promise<(SandboxFigures | null)[]> {
    return Promise.all(sandboxIds.map(async (id) => (await this.#sandboxes.get(id)?.figures()) ?? null))
  }

  /** See `RunnerSandboxes.review`. A change keeps the sandbox from being started meanwhile. */
  async review(request: ReviewRequest, paths: readonly string[] | undefined): Promise<Review> {
    if (!this.#host) throw new Refusal('storage_unavailable')
    const { orgId, sandboxId, act } = request
    const { workspaces, storage } = this.#host
    if (act === 'list' || act === 'diff') return workspaces.changes(storage.mounts, request, paths)
    if (this.#sandboxes.has(sandboxId) || this.#changing.has(sandboxId))
      throw new Refusal('sandbox_busy', { sandbox: sandboxId })
    await storage.watch.requireFor(orgId)
    const changing = workspaces.settle(storage.mounts, request, paths)
    this.#keepStopped(sandboxId, changing)
    return changing
  }

  #keepStopped(sandboxId: string, work: Promise<unknown>): void {
    const settled = work.then(
      () => undefined,
      () => undefined,
    )
    this.#changing.set(sandboxId, settled)
    void settled.then(() => this.#changing.delete(sandboxId))
  }

  /**
   * Calls a function after each change of state. The latest function alone receives the connections of those that ended,
   * also of those that ended while there was no function. @returns a function that stops this.
   */
  onChange(listener: (status: SandboxStatus) => void): () => void {
    this.#listeners.add(listener)
    for (const status of this.#unread.splice(0)) listener(status)
    return () => this.#listeners.delete(listener)
  }

  /** Ends all; their disks are kept. */
  async shutDown(): Promise<void> {
    this.#closed = true
    await Promise.allSettled(this.#starting.values())
    const active = [...this.#sandboxes.values()].filter(({ state }) => state.kind !== 'crashed')
    await Promise.all(active.map((sandbox) => sandbox.stop(0)))
  }

  #changed(sandbox: Sandbox): void {
    const { sandboxId } = sandbox.spec
    if (sandbox.state.kind === 'stopped') {
      if (this.#sandboxes.get(sandboxId) === sandbox) this.#sandboxes.delete(sandboxId)
    } else if (sandbox.state.kind === 'crashed') {
      this.#log.warn({ sandbox: sandboxId, reason: sandbox.state.reason }, 'sandbox crashed')
      this.#forgetCrashed()
    }
    if (sandbox.isReported) this.#tell(sandbox)
  }

  #tell({ status, spec: { keyId }, uses }: Sandbox): void {
    const listeners = [...this.#listeners]
    const whole = uses.length === 0 ? status : { ...status, network: { keyId, uses } }
    for (const listener of listeners) listener(listener === listeners.at(-1) ? whole : status)
    if (listeners.length > 0 || uses.length === 0) return
    this.#unread.push(whole)
    if (this.#unread.length > unreadMax) this.#unread.shift()
  }

  /** BOUNDARY: bounded, also when a front never starts or removes them again. */
  #forgetCrashed(): void {
    const crashed = [...this.#sandboxes.values()].filter(({ state }) => state.kind === 'crashed')
    for (const { spec } of crashed.slice(0, Math.max(0, crashed.length - crashedMax)))
      this.#sandboxes.delete(spec.sandboxId)
  }
}

const placesTaken = (max: number): string =>
  max === 0 ? 'this runner has no places for sandboxes (sandboxes_max)' : `all ${max} places for sandboxes are in use`

const unknown = (sandboxId: string): Refusal => new Refusal('sandbox_unknown', { sandbox: sandboxId, namespace: '' })

const notRunning = (sandboxId: string): Refusal =>
  new Refusal('sandbox_not_running', { sandbox: sandboxId, state: 'stopped' })
