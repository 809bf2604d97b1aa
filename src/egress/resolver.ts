import { lookup } from 'node:dns/promises'
import { FairLookups } from './fair-lookups.ts'

/** Resolves a host name to all of its current addresses. Rejects when it has none. */
export type Resolve = (host: string) => Promise<readonly string[]>

/** Of one name; more are ignored. */
const addressesMax = 32
const keptNames = 4_096
/** Long enough for the connections of one page, short enough for a name that moves. */
const keptMs = 15_000
/** A name server that does not answer must not hold a connection for longer. */
const withinMs = 10_000

export const bySystem: Resolve = async (host) =>
  (await lookup(host, { all: true, verbatim: true })).map(({ address }) => address)

/**
 * Names that were resolved a short time ago. A name that cannot be resolved is not kept. Organizations share nothing: the time
 * of an answer does not show what another one resolved, and none waits for the name servers of another one.
 */
export class Resolver {
  readonly #ask: Resolve
  readonly #lookups = new FairLookups()
  readonly #kept = new Map<string, { untilMs: number; addresses: Promise<readonly string[]> }>()

  constructor(ask: Resolve = bySystem) {
    this.#ask = ask
  }

  /** @throws Error when the name has no address, or not in time. */
  resolve(host: string, orgId: string): Promise<readonly string[]> {
    const nowMs = performance.now()
    const key = `${orgId} ${host}`
    const known = this.#kept.get(key)
    if (known !== undefined && known.untilMs > nowMs) return known.addresses
    const addresses = this.#askFor(host, orgId)
    this.#kept.delete(key)
    this.#kept.set(key, { untilMs: nowMs + keptMs, addresses })
    addresses.catch(() => {
      if (this.#kept.get(key)?.addresses === addresses) this.#kept.delete(key)
    })
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= keptNames) break
      this.#kept.delete(oldest)
    }
    return addresses
  }

  async #askFor(host: string, orgId: string): Promise<readonly string[]> {
    const late = Promise.withResolvers<never>()
    const timer = setTimeout(() => late.reject(new Error('no answer in time')), withinMs)
    try {
      const addresses = await Promise.race([this.#lookups.run(orgId, () => this.#ask(host)), late.promise])
      if (addresses.length === 0) throw new Error('no address')
      return addresses.slice(0, addressesMax)
    } finally {
      clearTimeout(timer)
    }
  }
}
