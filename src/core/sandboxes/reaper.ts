import { BackgroundJob, type Timers } from '../../base/background-job.ts'
import { Refusal } from '../../base/errors.ts'
import { fault } from '../../observe/log.ts'
import { liveStates, type SandboxRow } from '../../store/sandbox-rows.ts'
import { dayOf } from '../../store/usage.ts'
import type { Caller } from '../caller.ts'
import type { SandboxLifecycle } from './lifecycle.ts'
import { systemActor } from './sandbox-rows.ts'
import { settingsOf } from './settings.ts'

/** Interval in which timeouts are checked. */
const everyMs = 2_000
/** Automatic starts after crashes. A sandbox that crashes again and again stays crashed. */
const restartsMax = 5
/** Pause before the first automatic start; it doubles with each further one. */
const restartPauseMs = 1_000
/** Time that processes get to end when their sandbox is stopped for a timeout. */
const graceMs = 5_000

/** Why a sandbox is ended. */
type EndReason = 'idle' | 'lifetime'

/**
 * Ends sandboxes that are idle or whose lifetime is over, starts crashed ones again where their policy says so, and
 * records their last use and running time.
 */
export class SandboxReaper {
  readonly #lifecycle: SandboxLifecycle
  readonly #callerOf: (keyId: string) => Promise<Caller>
  readonly #job: BackgroundJob
  #countedMs: number

  /** @param callerOf rejects with a refusal for a key that is no longer valid. */
  constructor(lifecycle: SandboxLifecycle, callerOf: (keyId: string) => Promise<Caller>, timers?: Timers) {
    this.#lifecycle = lifecycle
    this.#callerOf = callerOf
    this.#countedMs = lifecycle.deps.clock.nowMs()
    this.#job = new BackgroundJob({
      everyMs,
      work: () => this.check(),
      onFault: (error) => error instanceof Refusal || fault(error, lifecycle.deps.log),
      ...(timers && { timers }),
    })
  }

  start(): void {
    this.#job.start()
  }

  stop(): Promise<void> {
    return this.#job.stop()
  }

  /** Checks all sandboxes once. */
  async check(): Promise<void> {
    const { store, clock } = this.#lifecycle.deps
    const rows = await store.sandboxes.inStates([...liveStates, 'crashed'])
    const nowMs = clock.nowMs()
    await this.#record(rows, nowMs)
    const live = rows.filter(({ id, state }) => state !== 'crashed' && !this.#lifecycle.isChanging(id))
    const due = live.flatMap((row) => {
      const reason = this.#endOf(row, nowMs)
      return reason === undefined ? [] : [() => this.#end(row, reason)]
    })
    const crashed = rows.filter((row) => row.state === 'crashed' && isDueForRestart(row, nowMs))
    const results = await Promise.allSettled([
      ...due.map((end) => end()),
      ...crashed.map((row) => this.#startAgain(row)),
    ])
    const failed = results.find(({ status }) => status === 'rejected')
    if (failed?.status === 'rejected') throw failed.reason
  }

  #endOf(row: SandboxRow, nowMs: number): EndReason | undefined {
    if (row.expiresAt !== null && Date.parse(row.expiresAt) <= nowMs)
      return row.state === 'paused' && settingsOf(row).onEnd === 'pause' ? undefined : 'lifetime'
    const { idleTimeoutMs } = settingsOf(row)
    if (idleTimeoutMs === null || row.state !== 'running') return undefined
    const { inUse, lastMs } = this.#lifecycle.activity.of(row.id, Date.parse(row.lastUsedAt))
    return !inUse && nowMs - lastMs >= idleTimeoutMs ? 'idle' : undefined
  }

  async #end(row: SandboxRow, reason: EndReason): Promise<void> {
    const { metrics, log } = this.#lifecycle.deps
    metrics.sandbox(reason)
    log.info({ sandbox_id: row.id, org_id: row.orgId, reason }, 'sandbox ended for its timeout')
    switch (settingsOf(row).onEnd) {
      case 'stop':
        return this.#lifecycle.stop(row, systemActor, graceMs, reason)
      case 'pause':
        return this.#lifecycle.pause(row, systemActor)
      case 'delete':
        return this.#lifecycle.remove(row, systemActor)
    }
  }

  async #startAgain(row: SandboxRow): Promise<void> {
    if (this.#lifecycle.isChanging(row.id)) return
    const { log } = this.#lifecycle.deps
    try {
      await this.#lifecycle.start(row, await this.#callerOf(row.keyId), {}, systemActor)
      log.info({ sandbox_id: row.id, org_id: row.orgId, restarts: row.restarts + 1 }, 'sandbox started after a crash')
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      // Its row says that it is crashed; without a valid key or room it stays so.
      log.info({ sandbox_id: row.id, org_id: row.orgId, reason: error.code }, 'sandbox not started after a crash')
    }
  }

  async #record(rows: readonly SandboxRow[], nowMs: number): Promise<void> {
    const { store } = this.#lifecycle.deps
    const live = rows.filter(({ state }) => state !== 'crashed')
    for (const { id } of live) {
      const lastMs = this.#lifecycle.activity.takeNew(id)
      if (lastMs !== undefined) await store.sandboxes.update(id, { lastUsedAt: new Date(lastMs).toISOString() })
    }
    this.#lifecycle.activity.keepOnly(new Set(live.map(({ id }) => id)))
    const sinceMs = nowMs - this.#countedMs
    this.#countedMs = nowMs
    if (sinceMs <= 0 || live.length === 0) return
    const byKey = Map.groupBy(live, ({ keyId }) => keyId)
    const used = [...byKey].map(([keyId, ofKey]) => ({
      orgId: ofKey[0]!.orgId,
      keyId,
      sandboxMs: ofKey.reduce((sum, row) => sum + ranMs(row, sinceMs, nowMs), 0),
    }))
    await store.sandboxes.addUsage(dayOf(new Date(nowMs).toISOString()), used)
  }
}

/** Time that a sandbox ran of the last `sinceMs`. */
const ranMs = ({ startedAt }: SandboxRow, sinceMs: number, nowMs: number): number =>
  Math.round(Math.max(0, Math.min(sinceMs, nowMs - Date.parse(startedAt ?? ''))) || 0)

function isDueForRestart(row: SandboxRow, nowMs: number): boolean {
  if (settingsOf(row).onCrash !== 'restart' || row.restarts >= restartsMax) return false
  return nowMs - Date.parse(row.endedAt ?? row.createdAt) >= restartPauseMs * 2 ** row.restarts - restartPauseMs
}
