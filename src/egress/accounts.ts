import {
  type NetworkKind,
  type NetworkOwner,
  type NetworkTotals,
  type NetworkVerdict,
  networkKinds,
  type SharedNetworkLimits,
} from '../base/network.ts'
import { Pace } from '../base/pace.ts'
import { NetworkRefused } from './decision.ts'

type Whose = 'key' | 'organization' | 'server'

/** What the jails of one key, of one organization, or all of them use together. */
export class SharedAccount {
  readonly #whose: Whose
  readonly #connectionsMax: number
  readonly #bytesPerSecond: number
  readonly #paces = { sent: new Pace(), received: new Pace() }
  #open = 0

  /** @param bytesPerSecond in each direction; 0 sets no limit. */
  constructor(whose: Whose, connectionsMax: number, bytesPerSecond: number) {
    this.#whose = whose
    this.#connectionsMax = connectionsMax
    this.#bytesPerSecond = bytesPerSecond
  }

  /** @throws NetworkRefused `refused_limit`. */
  requireRoom(): void {
    if (this.#open < this.#connectionsMax) return
    throw new NetworkRefused(
      'refused_limit',
      `network limit: ${this.#connectionsMax} connections of this ${this.#whose} are open`,
    )
  }

  enter(): void {
    this.#open += 1
  }

  leave(): void {
    this.#open -= 1
  }

  /** @returns for how many milliseconds no more may be read. */
  count(bytes: number, isSent: boolean): number {
    return this.#paces[isSent ? 'sent' : 'received'].count(bytes, this.#bytesPerSecond)
  }
}

/** Where the connections and bytes of a jail are counted besides its own limits. */
export interface JailAccounts {
  shared: readonly SharedAccount[]
  totals: NetworkTotals
}

/** A jail alone: without an owner who has others. */
export const ownAccounts = (): JailAccounts => ({ shared: [], totals: newTotals() })

const newTotals = (): NetworkTotals => ({ open: 0, connections: {}, sentBytes: 0, receivedBytes: 0 })

/** Counts a connection, or an attempt. */
export function countIn(totals: NetworkTotals, verdict: NetworkVerdict): void {
  totals.connections[verdict] = (totals.connections[verdict] ?? 0) + 1
}

/** The accounts of all jails of a broker. Those of a key or organization exist as long as one of its jails. */
export class Accounts {
  readonly #limits: SharedNetworkLimits
  readonly #all: SharedAccount
  readonly #shared = new Map<string, { account: SharedAccount; jails: number }>()
  readonly totals = Object.fromEntries(networkKinds.map((kind) => [kind, newTotals()])) as Record<
    NetworkKind,
    NetworkTotals
  >

  /** @param connectionsMax of all jails; one organization can have half of them. */
  constructor(limits: SharedNetworkLimits, connectionsMax = Number.POSITIVE_INFINITY) {
    this.#all = new SharedAccount('server', connectionsMax, 0)
    const most = Math.max(1, Math.floor(connectionsMax / 2))
    this.#limits = {
      ...limits,
      connectionsPerKey: Math.min(limits.connectionsPerKey, most),
      connectionsPerOrg: Math.min(limits.connectionsPerOrg, most),
    }
  }

  /** Opens the accounts of a jail; `close` ends them. */
  open({ kind, keyId, orgId }: NetworkOwner): JailAccounts {
    const { connectionsPerKey, connectionsPerOrg, bytesPerSecondPerKey, bytesPerSecondPerOrg } = this.#limits
    const shared = [
      this.#use(`key ${keyId}`, () => new SharedAccount('key', connectionsPerKey, bytesPerSecondPerKey)),
      this.#use(`org ${orgId}`, () => new SharedAccount('organization', connectionsPerOrg, bytesPerSecondPerOrg)),
    ]
    return { shared: [...shared, this.#all], totals: this.totals[kind] }
  }

  close({ keyId, orgId }: NetworkOwner): void {
    for (const name of [`key ${keyId}`, `org ${orgId}`]) {
      const used = this.#shared.get(name)
      if (used === undefined) continue
      used.jails -= 1
      if (used.jails === 0) this.#shared.delete(name)
    }
  }

  #use(name: string, make: () => SharedAccount): SharedAccount {
    const used = this.#shared.get(name) ?? { account: make(), jails: 0 }
    used.jails += 1
    this.#shared.set(name, used)
    return used.account
  }
}
