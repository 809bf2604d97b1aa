import { createHmac, randomBytes } from 'node:crypto'
import { BackgroundJob } from '../../base/background-job.ts'
import { monotonicMs, steadyTimestamp, timestamp } from '../../base/clock.ts'
import { newId } from '../../base/ids.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import { problemOf } from '../../outbound/outbound.ts'
import type { DeliveryRow, RunExtras } from '../../store/run-history.ts'
import type { Store } from '../../store/store.ts'
import { webhooksFull } from '../../store/webhooks.ts'
import { ensureSecret, sealedSecret } from '../access/master-key.ts'
import type { Vault } from '../access/vault.ts'
import { type RecordedRun, recordedRun } from '../runs/history.ts'

/** Sends requests to addresses of clients. */
export interface Post {
  /** Checks an address. @returns its host. @throws Refusal if the address cannot be used. */
  check(field: string, url: string): string
  /** Sends a POST request. @returns the status of the response. */
  post(request: {
    url: string
    headers: Readonly<Record<string, string>>
    body: string
    timeoutMs: number
    signal: AbortSignal
  }): Promise<number>
}

export interface WebhookDeps {
  store: Store
  vault: Vault
  outbound: Post
  /** Returns the body of the request that delivers a run. */
  toBody: (run: RecordedRun) => string
  log: Log
}

/** Counts the requests, and keeps the slow ones with their host. */
export const observed = (outbound: Post, { recent }: Pick<Metrics, 'recent'>): Post => ({
  check: (field, url) => outbound.check(field, url),
  post: async (request) => {
    const startedMs = monotonicMs()
    let status = 0
    try {
      status = await outbound.post(request)
      return status
    } finally {
      const isFailure = status < 200 || status >= 300
      recent.outbound.count(monotonicMs() - startedMs, isFailure, () => ({
        ...{ what: `webhook to ${new URL(request.url).host}`, status },
      }))
    }
  },
})

/** Timeout of one attempt. */
const attemptMs = 10_000
/** Time for which an attempt reserves its delivery. It is longer than `attemptMs`; afterwards another process can retry. */
const holdMs = 30_000
/** Pauses before the second and each further attempt. After the last one, the delivery fails permanently. */
const pausesMs = [1_000, 5_000, 30_000, 120_000, 600_000]
const roundEveryMs = 250

/** Maximum number of concurrent attempts. Each organization has few of them, so that its slow addresses delay no other. */
const attemptsMax = 64
const attemptsPerOrg = 4
const attemptsPerHost = 8
/** Maximum number of pending deliveries of one organization, which keeps the search for due ones short. */
const outstandingMax = 2_000

const secretName = (orgId: string): string => `webhook/${orgId}`
const newSecret = (): string => `whsec_${randomBytes(32).toString('base64url')}`

/** Returns the secret that an organization's webhooks are signed with. It is created at first use. */
export const webhookSecret = (store: Store, vault: Vault, orgId: string): Promise<string> =>
  ensureSecret(store, vault, secretName(orgId), newSecret())

/** Replaces the secret and returns the new one. @param rows access in the transaction that writes the audit line. */
export async function replaceWebhookSecret(rows: Pick<Store, 'secrets'>, vault: Vault, orgId: string): Promise<string> {
  const secret = newSecret()
  const { name, value } = sealedSecret(vault, secretName(orgId), secret)
  await rows.secrets.ensure(name, value)
  await rows.secrets.set(name, value)
  return secret
}

/** Returns the signature of a delivery: hex HMAC-SHA256 of the timestamp, a dot and the raw body. */
export const signatureOf = (secret: string, at: string, body: string): string =>
  createHmac('sha256', secret).update(`${at}.${body}`).digest('hex')

/** Delivers the endings of runs to webhook addresses, at least once each, from the outbox in the database. */
export class Webhooks {
  readonly #deps: WebhookDeps
  readonly #closing = new AbortController()
  readonly #attempts = new Map<string, { row: DeliveryRow; done: Promise<void> }>()
  readonly job: BackgroundJob
  /** Whether this process has corrected the due times that were written before the clock was set back. */
  #advanced = false
  /** The error of an attempt whose outcome could not be written. The next round reports it. */
  #failure: { error: unknown } | undefined

  constructor(deps: WebhookDeps) {
    this.#deps = deps
    this.job = new BackgroundJob({
      everyMs: roundEveryMs,
      work: () => this.#startAttempts(),
      onFault: (error) => fault(error, deps.log),
    })
  }

  /**
   * Returns the delivery that is inserted together with a run.
   * @throws Refusal `webhooks_full`, and those of `Post.check`.
   */
  async promise(orgId: string, url: string): Promise<NonNullable<RunExtras['delivery']>> {
    const host = this.#deps.outbound.check('webhook_url', url)
    const outstanding = await this.#deps.store.deliveries.outstanding(orgId, outstandingMax)
    if (outstanding >= outstandingMax) {
      throw webhooksFull(outstandingMax)
    }
    return { id: newId('event'), url, host, pendingMax: outstandingMax }
  }

  start(): void {
    this.job.start()
  }

  /** Aborts the attempts in progress. The next process repeats them. */
  async stop(): Promise<void> {
    this.#closing.abort()
    await this.job.stop()
    await Promise.all([...this.#attempts.values()].map(({ done }) => done))
    if (this.#failure) fault(this.#failure.error, this.#deps.log)
  }

  async #startAttempts(): Promise<void> {
    const { deliveries } = this.#deps.store
    const failure = this.#failure
    this.#failure = undefined
    if (failure) throw failure.error
    if (!this.#advanced) await deliveries.advance(steadyTimestamp(), steadyTimestamp(Math.max(holdMs, ...pausesMs)))
    this.#advanced = true
    while (this.#attempts.size < attemptsMax && !this.#closing.signal.aborted) {
      const busy = { busyHosts: this.#full('host', attemptsPerHost), busyOrgs: this.#full('orgId', attemptsPerOrg) }
      const [row] = await deliveries.due(steadyTimestamp(), busy, 1)
      if (row === undefined) return
      if (!(await deliveries.take(row, steadyTimestamp(holdMs)))) continue
      const done = this.#attempt(row)
        .catch((error: unknown) => {
          this.#failure = { error }
        })
        .finally(() => this.#attempts.delete(row.id))
      this.#attempts.set(row.id, { row, done })
    }
  }

  /** Returns the hosts or organizations that have reached their limit of concurrent attempts. */
  #full(by: 'host' | 'orgId', max: number): string[] {
    const counts = new Map<string, number>()
    for (const { row } of this.#attempts.values()) counts.set(row[by], (counts.get(row[by]) ?? 0) + 1)
    return [...counts].flatMap(([name, count]) => (count >= max ? [name] : []))
  }

  async #attempt(row: DeliveryRow): Promise<void> {
    const { store, vault, outbound, toBody } = this.#deps
    // Makes the ending durable: a power cut must not change it after its delivery.
    await store.sync()
    const at = timestamp()
    const body = toBody(await recordedRun(store, row, row.runId))
    const secret = await webhookSecret(store, vault, row.orgId)
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'glovebox',
      'x-event-id': row.id,
      'x-timestamp': at,
      'x-signature': signatureOf(secret, at, body),
      'x-trace-id': row.runId,
    }
    const { signal } = this.#closing
    try {
      const status = await outbound.post({ url: row.url, headers, body, timeoutMs: attemptMs, signal })
      const problem = status >= 200 && status < 300 ? null : `The receiver responded with status ${status}.`
      await this.#settle(row, problem)
    } catch (error) {
      if (!signal.aborted) return this.#settle(row, problemOf(error))
      const { status, attempts, problem } = row
      await store.deliveries.settle(row.id, { status, attempts, problem, dueAt: steadyTimestamp(), updatedAt: at })
    }
  }

  async #settle(row: DeliveryRow, problem: string | null): Promise<void> {
    const updatedAt = timestamp()
    const attempts = row.attempts + 1
    const pauseMs = pausesMs[row.attempts]
    const { log, store } = this.#deps
    const isDue = problem !== null && pauseMs !== undefined
    const status = problem === null ? 'delivered' : isDue ? 'due' : 'dead'
    const dueAt = isDue ? steadyTimestamp(pauseMs) : null
    await store.deliveries.settle(row.id, { status, attempts, dueAt, problem, updatedAt })
    if (status === 'dead') log.warn({ trace_id: row.runId, attempts, problem }, 'webhook delivery failed permanently')
  }
}
