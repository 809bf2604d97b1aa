import { randomBytes } from 'node:crypto'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newSandboxId } from '../../base/ids.ts'
import type { SandboxRow, SandboxRowState } from '../../store/sandbox-rows.ts'
import type { Caller } from '../caller.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import type { SandboxLifecycle } from './lifecycle.ts'
import { checkSandboxName, namespaceOf, type SandboxRef } from './names.ts'
import { auditedChange, findSandbox } from './sandbox-rows.ts'
import { checkTime, type SandboxRequest, settingsOf, toRequestedRow } from './settings.ts'
import { type SandboxMetrics, type SandboxView, toView } from './view.ts'

/** The capability that each operation requires. */
export const sandboxNeeds = {
  create: 'sandboxes.write',
  ensure: 'sandboxes.write',
  start: 'sandboxes.write',
  stop: 'sandboxes.write',
  restart: 'sandboxes.write',
  pause: 'sandboxes.write',
  resume: 'sandboxes.write',
  remove: 'sandboxes.write',
  extend: 'sandboxes.write',
  list: 'sandboxes.read',
  get: 'sandboxes.read',
  metrics: 'sandboxes.read',
  metricsOfAll: 'sandboxes.read',
} as const

/** Which sandboxes a list contains; an absent field does not restrict it. */
export interface SandboxQuery extends PageRequest {
  /** `*` for all namespaces of the key. */
  namespace?: string | undefined
  states?: readonly SandboxRowState[] | undefined
}

/** Time that processes get to end after SIGTERM. */
const stopGraceMs = 5_000
const graceMaxMs = 60_000

const shownStates: readonly SandboxRowState[] = ['starting', 'running', 'paused', 'stopping', 'stopped', 'crashed']

/**
 * Named sandboxes: environments that keep their processes and their disk between calls. Each belongs to a namespace of an
 * organization, whose keys share it.
 */
export class Sandboxes {
  readonly #lifecycle: SandboxLifecycle

  constructor(lifecycle: SandboxLifecycle) {
    this.#lifecycle = lifecycle
  }

  /**
   * Creates a sandbox and starts it.
   * @param ref an absent name is replaced by a new one.
   * @throws Refusal sandbox_exists, limit_reached, image_unknown, storage_full, unavailable, invalid_argument.
   */
  async create(caller: Caller, ref: Partial<SandboxRef>, request: SandboxRequest): Promise<SandboxView> {
    const { store, vault } = this.#lifecycle.deps
    const namespace = namespaceOf(caller, ref.namespace)
    const name = ref.name ?? `sandbox-${randomBytes(4).toString('hex')}`
    if (request.storage === undefined) checkSandboxName('name', name)
    const id = newSandboxId()
    const now = timestamp()
    const requested = toRequestedRow(caller, id, request, vault)
    const row: SandboxRow = {
      ...{ id, orgId: caller.orgId, namespace, name, keyId: caller.keyId, ...requested },
      ...{ state: 'starting', reason: null, createdAt: now, startedAt: now, endedAt: null, lastUsedAt: now },
      ...{ expiresAt: null, restarts: 0 },
    }
    const act = { actor: caller.keyId, action: 'create', details: { image: row.image } } as const
    const isNew = await auditedChange(store, row, act, async ({ sandboxes }) => {
      if (await sandboxes.create(row)) return true
      throw new Refusal('sandbox_exists', { sandbox: name, namespace })
    })
    await this.#lifecycle.launch(row, caller, isNew)
    return this.get(caller, { name: id })
  }

  /**
   * Starts a sandbox, and creates it if it does not exist. Settings apply only to one that does not run.
   * @throws Refusal as `create` and `start`.
   */
  async ensure(caller: Caller, ref: SandboxRef, request: SandboxRequest): Promise<SandboxView> {
    try {
      return await this.start(caller, ref, request)
    } catch (error) {
      if (!(error instanceof Refusal && error.code === 'sandbox_unknown')) throw error
    }
    try {
      return await this.create(caller, ref, request)
    } catch (error) {
      // Another call created it meanwhile.
      if (error instanceof Refusal && error.code === 'sandbox_exists') return this.start(caller, ref)
      throw error
    }
  }

  /**
   * Starts a stopped or crashed sandbox with its disk, and resumes a paused one. Does nothing if it runs.
   * @param request settings that replace those of the sandbox, if it is not running. Its disk can only grow.
   * @throws Refusal sandbox_unknown, limit_reached, sandbox_failed, unavailable, invalid_argument.
   */
  async start(caller: Caller, ref: SandboxRef, request: SandboxRequest = {}): Promise<SandboxView> {
    const row = await this.#find(caller, ref)
    await this.#lifecycle.start(row, caller, request)
    return this.get(caller, { name: row.id })
  }

  /**
   * Stops a sandbox and keeps its disk. Does nothing if it does not run.
   * @param graceMs time from SIGTERM to SIGKILL, at most a minute.
   * @throws Refusal sandbox_unknown, unavailable.
   */
  async stop(caller: Caller, ref: SandboxRef, graceMs = stopGraceMs): Promise<SandboxView> {
    if (graceMs > graceMaxMs) {
      throw new Refusal('invalid_argument', {
        field: 'grace',
        problem: `must be at most ${graceMaxMs / 1_000} seconds`,
      })
    }
    const row = await this.#find(caller, ref)
    await this.#lifecycle.stop(row, caller.keyId, graceMs)
    return this.get(caller, { name: row.id })
  }

  /** Stops a sandbox and starts it again with its disk. @throws Refusal as `stop` and `start`. */
  async restart(caller: Caller, ref: SandboxRef): Promise<SandboxView> {
    await this.stop(caller, ref)
    return this.start(caller, ref)
  }

  /** Freezes every process. @throws Refusal sandbox_unknown, sandbox_not_running, unavailable. */
  async pause(caller: Caller, ref: SandboxRef): Promise<SandboxView> {
    const row = await this.#find(caller, ref)
    await this.#lifecycle.pause(row, caller.keyId)
    return this.get(caller, { name: row.id })
  }

  /** Continues a paused sandbox. Does nothing if it runs. @throws Refusal sandbox_unknown, sandbox_not_running. */
  async resume(caller: Caller, ref: SandboxRef): Promise<SandboxView> {
    const row = await this.#find(caller, ref)
    await this.#lifecycle.resume(row, caller.keyId)
    return this.get(caller, { name: row.id })
  }

  /** Stops a sandbox and erases its disk. @throws Refusal sandbox_unknown, unavailable. */
  async remove(caller: Caller, ref: SandboxRef): Promise<void> {
    await this.#lifecycle.remove(await this.#find(caller, ref), caller.keyId)
  }

  /**
   * Sets the idle timeout and the lifetime, which counts from now. 0 removes one.
   * @throws Refusal sandbox_unknown, invalid_argument.
   */
  async extend(
    caller: Caller,
    ref: SandboxRef,
    times: { idleTimeoutMs?: number | undefined; lifetimeMs?: number | undefined },
  ): Promise<SandboxView> {
    const row = await this.#find(caller, ref)
    const { idleMs, lifetimeMaxMs } = caller.profile.sandboxes
    const settings = settingsOf(row)
    if (times.idleTimeoutMs !== undefined)
      settings.idleTimeoutMs = checkTime('idle_timeout', times.idleTimeoutMs, idleMs, null)
    if (times.lifetimeMs !== undefined)
      settings.lifetimeMs = checkTime('lifetime', times.lifetimeMs, null, lifetimeMaxMs)
    await this.#lifecycle.extend(row, caller.keyId, settings)
    return this.get(caller, { name: row.id })
  }

  /** Lists sandboxes by namespace and name. @throws Refusal namespace_denied, invalid_argument. */
  async list(caller: Caller, query: SandboxQuery): Promise<Page<SandboxView>> {
    const { items, nextCursor } = await this.#rows(caller, query)
    return { items: items.map(toView), nextCursor }
  }

  /** @throws Refusal sandbox_unknown. */
  async get(caller: Caller, ref: SandboxRef): Promise<SandboxView> {
    return toView(await this.#find(caller, ref))
  }

  /** Returns the figures of one sandbox. @throws Refusal sandbox_unknown, unavailable. */
  async metrics(caller: Caller, ref: SandboxRef): Promise<SandboxMetrics> {
    const row = await this.#find(caller, ref)
    return (await this.#withFigures([row]))[0]!
  }

  /** Returns the figures of a page of sandboxes. @throws Refusal as `list`, unavailable. */
  async metricsOfAll(caller: Caller, query: SandboxQuery): Promise<Page<SandboxMetrics>> {
    const { items, nextCursor } = await this.#rows(caller, query)
    return { items: await this.#withFigures(items), nextCursor }
  }

  #find(caller: Caller, ref: SandboxRef): Promise<SandboxRow> {
    return findSandbox(this.#lifecycle.deps.store, caller, ref)
  }

  #rows(caller: Caller, { namespace, states, ...asked }: SandboxQuery): Promise<Page<SandboxRow>> {
    const namespaces =
      namespace === undefined || namespace === '*' ? (caller.namespaces ?? null) : [namespaceOf(caller, namespace)]
    const filter = { namespaces, states: states ?? shownStates }
    return page(
      asked,
      ['', ''],
      ({ namespace, name }: SandboxRow) => [namespace, name],
      ([namespace, name], limit) =>
        this.#lifecycle.deps.store.sandboxes.page(caller.orgId, filter, { namespace, name }, limit),
    )
  }

  async #withFigures(rows: readonly SandboxRow[]): Promise<SandboxMetrics[]> {
    const running = rows.filter(({ state }) => state === 'running' || state === 'paused')
    const ids = running.map(({ id }) => id)
    const figures = ids.length === 0 ? [] : await this.#lifecycle.deps.runner.figures(ids)
    const byId = new Map(ids.map((id, n) => [id, figures[n] ?? null]))
    return rows.map(({ id, namespace, name, state }) => ({ id, namespace, name, state, figures: byId.get(id) ?? null }))
  }
}
