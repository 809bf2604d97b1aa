import { monotonicMs, timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { RunRow, Store } from '../../store/store.ts'
import { dayOf } from '../../store/usage.ts'

/** What the runs of an org or a key may use; what is absent is not limited. */
export interface UsageLimits {
  /** Runs that begin within any 60 seconds. */
  runs_per_minute?: number
  /** Runs at once. */
  concurrent_runs?: number
  /** Duration of all runs of a day (UTC) together. What goes on when it is reached goes on; nothing begins after. */
  run_seconds_per_day?: number
  /** Sum of the quotas of all threads and volumes; of an org alone. */
  storage_bytes?: number
}

/** How soon every front knows of a change. */
const knownMs = 500
const minuteMs = 60_000

/** Of a run as limits count it. */
type Counted = Pick<RunRow, 'id' | 'orgId' | 'keyId'>

/** What one org or key has going. */
interface Account {
  amounts: UsageLimits
  knownUntilMs: number
  /** When runs began, within the last minute, oldest first; only where that is limited. */
  startsMs: number[]
  /** When each run that goes on began. */
  running: Map<string, number>
  /** What ended runs of `day` took; `day` is empty where nobody asked yet. */
  day: string
  usedMs: number
}

/**
 * Holds runs to the limits of their org and key. Counted in memory, by the one front of the instance; what a day has
 * used is in the rows, so a restart forgets none of it.
 */
export class UsageLimiter {
  readonly #store: Store
  readonly #accounts = new Map<string, Account>()
  /** Runs that go on, by id. */
  readonly #runs = new Map<string, Counted>()

  constructor(store: Store) {
    this.#store = store
  }

  /**
   * Counts a run that is about to begin.
   * @throws Refusal limit_reached that says which limit and when to come again; then nothing was counted.
   */
  async admit(run: Counted): Promise<void> {
    const owners = [await this.#account('key', run.keyId, run), await this.#account('org', run.orgId, run)] as const
    // From here on nothing waits, so calls at the same moment are counted one after the other.
    const nowMs = monotonicMs()
    for (const account of owners) requireRoom(account, nowMs)
    this.#runs.set(run.id, run)
    for (const { amounts, startsMs, running } of owners) {
      running.set(run.id, nowMs)
      if (amounts.runs_per_minute !== undefined) startsMs.push(nowMs)
    }
  }

  /** Takes over a run of an earlier front. */
  adopt(run: Counted): void {
    this.#runs.set(run.id, run)
    for (const ownerId of [run.keyId, run.orgId]) this.#of(ownerId).running.set(run.id, monotonicMs())
  }

  /** To be called when a run has ended. @param ranMs its duration; 0 where it never ran. */
  release(runId: string, ranMs: number): void {
    const run = this.#runs.get(runId)
    if (!run) return
    this.#runs.delete(runId)
    for (const ownerId of [run.keyId, run.orgId]) {
      const account = this.#of(ownerId)
      if (account.running.delete(run.id)) account.usedMs += ranMs
    }
  }

  /** @returns the limits of an org or key. */
  async amountsOf(ownerId: string): Promise<UsageLimits> {
    return JSON.parse((await this.#store.limits.get(ownerId)) ?? '{}') as UsageLimits
  }

  #of(ownerId: string): Account {
    const known = this.#accounts.get(ownerId)
    if (known) return known
    const account: Account = { amounts: {}, knownUntilMs: 0, startsMs: [], running: new Map(), day: '', usedMs: 0 }
    this.#accounts.set(ownerId, account)
    return account
  }

  async #account(owner: 'key' | 'org', ownerId: string, { orgId }: Counted): Promise<Account & { owner: string }> {
    const account = this.#of(ownerId)
    if (account.knownUntilMs <= monotonicMs()) {
      account.amounts = await this.amountsOf(ownerId)
      account.knownUntilMs = monotonicMs() + knownMs
    }
    if (account.amounts.run_seconds_per_day !== undefined) await this.#readDay(account, owner, ownerId, orgId)
    return Object.assign(account, { owner })
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

function requireRoom(account: Account & { owner: string }, nowMs: number): void {
  const { owner, amounts, running } = account
  const refuse = (limit: string, amount: number, retryAfterMs: number): never => {
    const retryAfterSeconds = Math.max(1, Math.ceil(retryAfterMs / 1000))
    throw new Refusal('limit_reached', { owner, limit, amount, retryAfterSeconds })
  }
  const { concurrent_runs: atOnce, runs_per_minute: perMinute, run_seconds_per_day: secondsPerDay } = amounts
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
