import { monotonicMs } from '../../../base/clock.ts'
import { Refusal } from '../../../base/errors.ts'
import { Pace } from '../../../base/pace.ts'

const hourMs = 3_600_000

/** What previews transfer at most: of the ports that one key published, and of those of one organization; 0 sets no limit. */
export interface PreviewLimits {
  /** In each direction. */
  bytesPerSecondPerKey: number
  bytesPerSecondPerOrg: number
  /** In both directions, within an hour that begins with the first byte. */
  bytesPerHourPerKey: number
  bytesPerHourPerOrg: number
}

export const noPreviewLimits: PreviewLimits = {
  bytesPerSecondPerKey: 0,
  bytesPerSecondPerOrg: 0,
  bytesPerHourPerKey: 0,
  bytesPerHourPerOrg: 0,
}

/** Whose traffic it is. */
export interface TrafficOwners {
  keyId: string
  orgId: string
}

interface Account {
  sent: Pace
  received: Pace
  bytes: number
  /** When its hour ends, on the monotonic clock. */
  endsMs: number
}

/** Counts and delays what previews transfer. */
export class PreviewTraffic {
  readonly #limits: PreviewLimits
  readonly #now: () => number
  /** Those whose hour has not ended. */
  readonly #accounts = new Map<string, Account>()

  constructor(limits: PreviewLimits, now: () => number = monotonicMs) {
    this.#limits = limits
    this.#now = now
  }

  /** Number of owners with traffic in their hour. */
  get size(): number {
    return this.#accounts.size
  }

  /** @throws Refusal preview_traffic, if the bytes of an owner are used up. */
  requireRoom(owners: TrafficOwners): void {
    const nowMs = this.#now()
    for (const [id, { endsMs }] of this.#accounts) if (endsMs <= nowMs) this.#accounts.delete(id)
    for (const { id, owner, bytesPerHour: max } of this.#boundsOf(owners)) {
      const account = this.#accounts.get(id)
      if (max === 0 || account === undefined || account.bytes < max) continue
      const retryAfterSeconds = Math.ceil((account.endsMs - nowMs) / 1_000)
      throw new Refusal('preview_traffic', { owner, max, retryAfterSeconds })
    }
  }

  /** @returns for how many milliseconds no more may follow; `undefined` if the bytes of an owner are used up. */
  count(owners: TrafficOwners, bytes: number, direction: 'sent' | 'received'): number | undefined {
    let waitMs = 0
    let isOver = false
    for (const { id, bytesPerSecond, bytesPerHour } of this.#boundsOf(owners)) {
      if (bytesPerSecond === 0 && bytesPerHour === 0) continue
      const account = this.#accountOf(id)
      account.bytes += bytes
      isOver ||= bytesPerHour > 0 && account.bytes > bytesPerHour
      waitMs = Math.max(waitMs, account[direction].count(bytes, bytesPerSecond))
    }
    return isOver ? undefined : waitMs
  }

  #accountOf(id: string): Account {
    const nowMs = this.#now()
    const known = this.#accounts.get(id)
    if (known !== undefined && known.endsMs > nowMs) return known
    const { sent = new Pace(), received = new Pace() } = known ?? {}
    const account = { sent, received, bytes: 0, endsMs: nowMs + hourMs }
    this.#accounts.set(id, account)
    return account
  }

  #boundsOf({ keyId, orgId }: TrafficOwners) {
    const { bytesPerSecondPerKey, bytesPerSecondPerOrg, bytesPerHourPerKey, bytesPerHourPerOrg } = this.#limits
    return [
      { owner: 'key', id: keyId, bytesPerSecond: bytesPerSecondPerKey, bytesPerHour: bytesPerHourPerKey },
      { owner: 'organization', id: orgId, bytesPerSecond: bytesPerSecondPerOrg, bytesPerHour: bytesPerHourPerOrg },
    ] as const
  }
}
