import { monotonicMs, timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { SandboxLimitAmounts } from '../../store/sandbox-limits.ts'
import type { RunRow, Store } from '../../store/store.ts'
import { dayOf } from '../../store/usage.ts'

/** Limits for the runs of an organization or a key. An absent one does not apply. */
export interface UsageLimits extends SandboxLimitAmounts {
  /** Runs that start within any 60 seconds. */
  runs_per_minute?: number
  /** Concurrent runs, including queued ones. */
  concurrent_runs?: number
  /** Total duration of the runs of a day (UTC). When it is reached, active runs continue and no other run starts. */
  run_seconds_per_day?: number
  /** Sum of the quotas of all threads, volumes and sandboxes, in bytes. For organizations only. */
  storage_bytes?: number
}

/** Time after which a change takes effect in every front. */
const knownMs = 500
/** Number of accounts above which idle ones are deleted. */
const accountsMax = 10_000
const minuteMs = 60_000

/** The fields of a run that limits depend on. */
type Counted = Pick<RunRow, 'id' | 'orgId' | 'keyId'>

/** The current usage of one organization or key. */
interface Account {
  limits: UsageLimits
  knownUntilMs: number
  /** Number of calls that are about to count a run in this account. */
  admitting: number
  /** Start times of the runs of the last minute, oldest first; recorded only if `runs_per_minute` is set. */
  startsMs: number[]
  /** Start time of each unfinished run, by ID. */
  running: Map<string, number>
  /** The day that the total duration of ended runs refers to; empty until it is needed. */
  day: string
  usedMs: number
}

/**
 * Enforces the limits of organizations and keys. Usage is counted in memory, by the only front of the instance.
 * Daily usage is also stored in the database, so it survives a restart.
 */
export class UsageLimiter {
  readonly #store: Store
  readonly #accounts = new Map<string, Account>()
  /** Unfinished runs, by id. */
  readonly #runs = new Map<string, Counted>()

  constructor(store: Store) {
    this.#store = store
  }

  /**
   * Counts a run that is about to start.
   * @throws Refusal limit_reached, with the limit and the time to retry; in this case nothing is counted.
   */
  async admit(run: Counted): Promise<void> {
    const key = this.#of(run.keyId)
    const org = this.#of(run.orgId)
    key.admitting += 1
    org.admitting += 1
    try {
      await this.#refresh(key, 'key', run.keyId, run)
      await this.#refresh(org, 'org', run.orgId, run)
    } finally {
      key.admitting -= 1
      org.admitting -= 1
    }
    // No await follows, so concurrent calls are counted one after the other.
    const nowMs = monotonicMs()
    requireRoom(key, 'key', nowMs)
    requireRoom(org, 'org', nowMs)
    this.#runs.set(run.id, run)
    for (const { limits, startsMs, running } of [key, org]) {
      running.set(run.id, nowMs)
      if (limits.runs_per_minute !== undefined) startsMs.push(nowMs)
    }
  }

  /** Counts a run that an earlier front started. */
  adopt(run: Counted): void {
    this.#runs.set(run.id, run)
    for (const ownerId of [run.keyId, run.orgId]) this.#of(ownerId).running.set(run.id, monotonicMs())
  }

  /** Stops counting an admitted run that did not begin. */
  withdraw(runId: string): void {
    const run = this.#runs.get(runId)
    if (!run) return
    this.#runs.delete(runId)
    for (const ownerId of [run.keyId, run.orgId]) {
      const { running, startsMs } = this.#of(ownerId)
      const startMs = running.get(runId)
      running.delete(runId)
      const start = startMs === undefined ? -1 : startsMs.indexOf(startMs)
      if (start >= 0) startsMs.splice(start, 1)
    }
  }

  /** Must be called when a run has ended. @param ranMs its duration; 0 if it never started. */
  release(runId: string, ranMs: number): void {
    const run = this.#runs.get(runId)
    if (!run) return
    this.#runs.delete(runId)
    for (const ownerId of [run.keyId, run.orgId]) {
      const account = this.#of(ownerId)
      if (account.running.delete(run.id)) account.usedMs += ranMs
    }
  }

  /** Returns the limits of an organization or key. */
  async limitsOf(ownerId: string): Promise<UsageLimits> {
    return JSON.parse((await this.#store.limits.get(ownerId)) ?? '{}') as UsageLimits
  }

  #of(ownerId: string): Account {
    const known = this.#accounts.get(ownerId)
    if (known) return known
    const account = { limits: {}, knownUntilMs: 0, admitting: 0, startsMs: [], running: new Map(), day: '', usedMs: 0 }
    if (this.#accounts.size >= accountsMax) this.#deleteIdle()
    this.#accounts.set(ownerId, account)
    return account
  }

  /** Deletes idle accounts, whose content can be read again. Accounts with active or recent runs remain. */
  #deleteIdle(): void {
    const minuteAgoMs = monotonicMs() - minuteMs
    for (const [ownerId, { running, admitting, startsMs }] of this.#accounts) {
      const isIdle = running.size === 0 && admitting === 0 && (startsMs.at(-1) ?? 0) < minuteAgoMs
      if (isIdle) this.#accounts.delete(ownerId)
    }
  }

  async #refresh(account: Account, owner: 'key' | 'org', ownerId: string, { orgId }: Counted): Promise<void> {
    if (account.knownUntilMs <= monotonicMs()) {
      account.limits = await this.limitsOf(ownerId)
      account.knownUntilMs = monotonicMs() + knownMs
    }
    if (account.limits.run_seconds_per_day !== undefined) await this.#readDay(account, owner, ownerId, orgId)
  }

  async #readDay(account: Account, owner: 'key' | 'org', ownerId: string, orgId: string): Promise<void> {
    const today = dayOf(timestamp())
    if (account.day === today) return
    const rows = await this.#store.usage.list(orgId, today, `${today}~`)
    const own = owner === 'org' ? rows : rows.filter(({ keyId }) => keyId === ownerId)
    account.day = today
    account.usedMs = own.reduce((sum, { runMs }) => sum + runMs, 0)
  }
}

function requireRoom(account: Account, owner: 'key' | 'org', nowMs: number): void {
  const { limits, running } = account
  const refuse = (limit: string, amount: number, retryAfterMs: number): never => {
    const retryAfterSeconds = Math.max(1, Math.ceil(retryAfterMs / 1000))
    throw new Refusal('limit_reached', { owner, limit, amount, retryAfterSeconds })
  }
  const { concurrent_runs: atOnce, runs_per_minute: perMinute, run_seconds_per_day: secondsPerDay } = limits
  if (atOnce !== undefined && running.size >= atOnce) refuse('concurrent_runs', atOnce, 1_000)
  if (perMinute !== undefined) {
    const firstLive = account.startsMs.findIndex((startMs) => startMs > nowMs - minuteMs)
    account.startsMs.splice(0, firstLive === -1 ? account.startsMs.length : firstLive)
    const freeMs = (account.startsMs.at(-perMinute) ?? nowMs) + minuteMs - nowMs
    if (account.startsMs.length >= perMinute) refuse('runs_per_minute', perMinute, freeMs)
  }
  if (secondsPerDay !== undefined) {
    const goingMs = [...running.values()].reduce((sum, startMs) => sum + nowMs - startMs, 0)
    const dayLeftMs = 86_400_000 - (Date.now() % 86_400_000)
    if (account.usedMs + goingMs >= secondsPerDay * 1_000) refuse('run_seconds_per_day', secondsPerDay, dayLeftMs)
  }
}
