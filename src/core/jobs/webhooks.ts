import { createHmac, randomBytes } from 'node:crypto'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import { fault, type Log } from '../../observe/log.ts'
import { problemOf } from '../../outbound/outbound.ts'
import type { DeliveryRow, RunExtras } from '../../store/run-history.ts'
import type { Store } from '../../store/store.ts'
import { ensureSecret, sealedSecret } from '../access/master-key.ts'
import type { Vault } from '../access/vault.ts'
import { type RecordedRun, recordedRun } from '../runs/history.ts'

/** Where endings are told, and how. */
export interface Post {
  /** @returns the host. @throws Refusal where an address cannot be used. */
  check(field: string, url: string): string
  /** @returns the status of the answer. */
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
  /** A run as clients are told of it. */
  toBody: (run: RecordedRun) => string
  log: Log
}

/** How long one try may take. */
const tryMs = 10_000
/** Longer than a try: a front that died in the middle of one gives way to the next. */
const holdMs = 30_000
/** Until the second try, the third and so on; after the last one it is given up. */
const pausesMs = [1_000, 5_000, 30_000, 120_000, 600_000]
const lookEveryMs = 250
/** After a look that failed; long enough that a database out of order does not fill the log. */
const retryMs = 2_000

/** Tries at once. One org has few of them, so that what it waits for holds up nobody else. */
const triesMax = 64
const triesPerOrg = 4
const triesPerHost = 8
/** Endings that one org has still to be told, so that looking for what is due stays short. */
const outstandingMax = 2_000
const fullSeconds = 30

const secretName = (orgId: string): string => `webhook/${orgId}`
const newSecret = (): string => `whsec_${randomBytes(32).toString('base64url')}`

/** What an org's webhooks are signed with; made when it is first asked for. */
export const webhookSecret = (store: Store, vault: Vault, orgId: string): Promise<string> =>
  ensureSecret(store, vault, secretName(orgId), newSecret())

/** A new one. @param rows of the transaction that says so in the audit. */
export async function replaceWebhookSecret(rows: Pick<Store, 'secrets'>, vault: Vault, orgId: string): Promise<string> {
  const secret = newSecret()
  const { name, value } = sealedSecret(vault, secretName(orgId), secret)
  await rows.secrets.ensure(name, value)
  await rows.secrets.set(name, value)
  return secret
}

/** Hex HMAC-SHA256 over the timestamp, a dot and the raw body. */
export const signatureOf = (secret: string, at: string, body: string): string =>
  createHmac('sha256', secret).update(`${at}.${body}`).digest('hex')

/** Tells endings of runs to addresses of clients, at least once each, from the outbox of the store. */
export class Webhooks {
  readonly #rooms: WebhookDeps
  readonly #closing = new AbortController()
  readonly #tries = new Map<string, { row: DeliveryRow; going: Promise<void> }>()
  #timer: NodeJS.Timeout | undefined
  #looking: Promise<void> | undefined
  #retryAtMs = 0

  constructor(rooms: WebhookDeps) {
    this.#rooms = rooms
  }

  /**
   * What is written with a run whose ending is told.
   * @throws Refusal where the address cannot be used, `webhooks_full`.
   */
  async promise(orgId: string, url: string): Promise<NonNullable<RunExtras['delivery']>> {
    const host = this.#rooms.outbound.check('webhook_url', url)
    const outstanding = await this.#rooms.store.deliveries.outstanding(orgId, outstandingMax)
    if (outstanding >= outstandingMax) {
      throw new Refusal('webhooks_full', { amount: outstanding, retryAfterSeconds: fullSeconds })
    }
    return { id: newId('event'), url, host }
  }

  start(): void {
    this.#timer = setInterval(() => this.#look(), lookEveryMs).unref()
  }

  /** Ends tries that are under way; they are made again by whoever comes next. */
  async stop(): Promise<void> {
    clearInterval(this.#timer)
    this.#closing.abort()
    await this.#looking
    await Promise.all([...this.#tries.values()].map(({ going }) => going))
  }

  #look(): void {
    if (this.#looking || performance.now() < this.#retryAtMs || this.#closing.signal.aborted) return
    this.#looking = this.#startTries()
      .catch((error: unknown) => this.#leaveForLater(error))
      .finally(() => {
        this.#looking = undefined
      })
  }

  #leaveForLater(error: unknown): void {
    this.#retryAtMs = performance.now() + retryMs
    fault(error, this.#rooms.log)
  }

  async #startTries(): Promise<void> {
    const { deliveries } = this.#rooms.store
    while (this.#tries.size < triesMax) {
      const now = new Date()
      const busy = { busyHosts: this.#full('host', triesPerHost), busyOrgs: this.#full('orgId', triesPerOrg) }
      const [row] = await deliveries.due(now.toISOString(), busy, 1)
      if (row === undefined) return
      if (!(await deliveries.take(row, new Date(now.getTime() + holdMs).toISOString()))) continue
      const going = this.#try(row)
        .catch((error: unknown) => this.#leaveForLater(error))
        .finally(() => this.#tries.delete(row.id))
      this.#tries.set(row.id, { row, going })
    }
  }

  /** Those that have as many tries as they may have. */
  #full(by: 'host' | 'orgId', max: number): string[] {
    const counts = new Map<string, number>()
    for (const { row } of this.#tries.values()) counts.set(row[by], (counts.get(row[by]) ?? 0) + 1)
    return [...counts].flatMap(([name, count]) => (count >= max ? [name] : []))
  }

  async #try(row: DeliveryRow): Promise<void> {
    const { store, vault, outbound, toBody } = this.#rooms
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
      const status = await outbound.post({ url: row.url, headers, body, timeoutMs: tryMs, signal })
      const problem = status >= 200 && status < 300 ? null : `It answered with status ${status}.`
      await this.#settle(row, problem)
    } catch (error) {
      if (!signal.aborted) return this.#settle(row, problemOf(error))
      const { status, attempts, problem } = row
      await store.deliveries.settle(row.id, { status, attempts, problem, dueAt: timestamp(), updatedAt: at })
    }
  }

  async #settle(row: DeliveryRow, problem: string | null): Promise<void> {
    const now = new Date()
    const updatedAt = now.toISOString()
    const attempts = row.attempts + 1
    const pauseMs = pausesMs[row.attempts]
    const { log, store } = this.#rooms
    const isDue = problem !== null && pauseMs !== undefined
    const status = problem === null ? 'delivered' : isDue ? 'due' : 'dead'
    const dueAt = isDue ? new Date(now.getTime() + pauseMs).toISOString() : null
    await store.deliveries.settle(row.id, { status, attempts, dueAt, problem, updatedAt })
    if (status === 'dead') log.warn({ trace_id: row.runId, attempts, problem }, 'a webhook was given up')
  }
}

/** Of a call that wants its ending told and names no address. */
export const addressMissing = (): Refusal =>
  new Refusal('invalid_argument', {
    field: 'webhook_url',
    problem: 'is required with Prefer: respond-async, since the profile of this key names no address',
  })
