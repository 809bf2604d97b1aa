import {
  type NetworkCounts,
  type NetworkLimits,
  type NetworkUse,
  type NetworkVerdict,
  networkUsesMax,
  plainName,
} from '../base/network.ts'
import { Pace } from '../base/pace.ts'
import { countIn, type JailAccounts } from './accounts.ts'
import { NetworkRefused, type Target } from './decision.ts'

/** Counts the connections and bytes of one jail, for its limits and for the result of its run. */
export class Meter {
  #limits: NetworkLimits
  readonly #uses = new Map<string, NetworkUse>()
  #open = 0
  #bytes = 0
  #sentBytes = 0
  readonly #pace = new Pace()
  readonly #accounts: JailAccounts

  constructor(limits: NetworkLimits, accounts: JailAccounts) {
    this.#limits = limits
    this.#accounts = accounts
  }

  /** Applies other limits to what follows. */
  change(limits: NetworkLimits): void {
    this.#limits = limits
  }

  /** Takes a place for a connection. @throws NetworkRefused `refused_limit`. */
  enter(): void {
    const { connections, bytes, sentBytes = 0 } = this.#limits
    if (this.#open >= connections) {
      throw new NetworkRefused('refused_limit', `network limit: ${connections} connections of this run are open`)
    }
    if (bytes > 0 && this.#bytes >= bytes) {
      throw new NetworkRefused('refused_limit', `network limit: this run has transferred ${bytes} bytes`)
    }
    if (sentBytes > 0 && this.#sentBytes >= sentBytes) {
      throw new NetworkRefused('refused_limit', `network limit: this run has sent ${sentBytes} bytes`)
    }
    const { shared, totals } = this.#accounts
    for (const account of shared) account.requireRoom()
    for (const account of shared) account.enter()
    this.#open += 1
    totals.open += 1
  }

  leave(): void {
    this.#open -= 1
    this.#accounts.totals.open -= 1
    for (const account of this.#accounts.shared) account.leave()
  }

  get open(): number {
    return this.#open
  }

  /** Counts one connection, or attempt. @returns where its bytes are counted. */
  record(target: Target, verdict: NetworkVerdict): NetworkUse {
    const use = this.useOf(target, verdict)
    use.connections += 1
    countIn(this.#accounts.totals, verdict)
    return use
  }

  /** Where what goes to a destination is counted. */
  useOf({ host, port }: Target, verdict: NetworkVerdict = 'allowed'): NetworkUse {
    const name = plainName(host).slice(0, 253)
    const key = `${verdict} ${port} ${name}`
    return this.#uses.get(key) ?? this.#newUse(key, { host: name, port, verdict })
  }

  #newUse(key: string, use: Pick<NetworkUse, 'host' | 'port' | 'verdict'>): NetworkUse {
    const isFull = this.#uses.size >= networkUsesMax
    const place = isFull ? `${use.verdict} others` : key
    const known = this.#uses.get(place)
    if (known !== undefined) return known
    const made = { ...use, ...(isFull && { host: '*', port: 0 }), connections: 0, bytes: 0 }
    this.#uses.set(place, made)
    return made
  }

  /**
   * Counts bytes.
   * @param isSent whether the program sent them.
   * @returns for how many milliseconds no more may be read.
   * @throws NetworkRefused `refused_limit` when the run has used up its bytes.
   */
  count(use: NetworkUse, bytes: number, isSent: boolean): number {
    const { shared, totals } = this.#accounts
    if (isSent) this.#sentBytes += bytes
    totals[isSent ? 'sentBytes' : 'receivedBytes'] += bytes
    use.bytes += bytes
    this.#bytes += bytes
    const { bytes: limit, sentBytes: sentLimit = 0, bytesPerSecond } = this.#limits
    if (limit > 0 && this.#bytes > limit) throw new NetworkRefused('refused_limit', `network limit: ${limit} bytes`)
    if (isSent && sentLimit > 0 && this.#sentBytes > sentLimit)
      throw new NetworkRefused('refused_limit', `network limit: ${sentLimit} bytes may be sent`)
    let waitMs = this.#pace.count(bytes, bytesPerSecond)
    for (const account of shared) waitMs = Math.max(waitMs, account.count(bytes, isSent))
    return waitMs
  }

  get counts(): NetworkCounts {
    return { uses: this.uses, sentBytes: this.#sentBytes, receivedBytes: this.#bytes - this.#sentBytes }
  }

  /** What was counted so far. */
  get uses(): NetworkUse[] {
    return [...this.#uses.values()].map((use) => ({ ...use }))
  }
}
