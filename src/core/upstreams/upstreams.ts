import { LRUCache } from 'lru-cache'
import { Refusal } from '../../base/errors.ts'
import type { Store } from '../../store/store.ts'
import type { UpstreamRow } from '../../store/upstream-rows.ts'
import type { Vault } from '../access/vault.ts'
import type { Caller } from '../caller.ts'
import { dayMs, dayMsOf, toPeriod } from '../times.ts'
import { grantedTools } from './grants.ts'
import { changedTools, type UpstreamListing } from './listing.ts'
import { OpenedSecrets, type UpstreamSecrets } from './secrets.ts'
import { totalsBy, type UpstreamTotals, type UpstreamUsage, type UsageGroup } from './usage.ts'

/** Time after which a change by an administrator takes effect. Until then, calls use the cache and need no query. */
const knownMs = 250
/** Maximum number of organizations whose upstreams are cached. */
const orgsMax = 1_000
/** Maximum number of upstreams of one organization. */
export const upstreamsMax = 200

/** An upstream as callers see it, without its address and secrets. */
export interface OfferedUpstream {
  name: string
  displayName: string
  description: string
  tags: readonly string[]
  /** The tools that the caller may call, the prompts and the resources; `null` until they were read once. */
  listing: UpstreamListing | null
}

/** An upstream as the gateway connects to it. */
export interface UpstreamTarget {
  id: string
  name: string
  url: string
  timeoutMs: number
  secrets: UpstreamSecrets
  /** Names of the tools that the caller may call; `all` if its key may call every tool. */
  tools: 'all' | ReadonlySet<string>
  /** Names of the approved tools. */
  listed: ReadonlySet<string>
  /** Names of suspended tools: new ones, and those whose description or schema has changed since it was approved. */
  suspended: ReadonlySet<string>
}

/** The capability that each operation requires. */
export const upstreamNeeds = {
  list: 'upstreams.read',
  get: 'upstreams.read',
  usage: 'upstreams.read',
  target: 'upstreams.call',
} as const

interface Known {
  row: UpstreamRow
  listing: UpstreamListing | null
  listed: ReadonlySet<string>
  suspended: ReadonlySet<string>
}

/** The MCP servers that an organization has registered, as its keys see them. */
export class Upstreams {
  readonly #store: Pick<Store, 'upstreams' | 'upstreamUsage'>
  readonly #secrets: OpenedSecrets
  readonly #usage: UpstreamUsage
  readonly #ofOrgs = new LRUCache<string, ReadonlyMap<string, Known>>({ max: orgsMax, ttl: knownMs })
  /** Parsed listings, by ID and time of the last change of the row. */
  readonly #parsed = new LRUCache<string, Known>({ max: orgsMax })

  constructor(store: Pick<Store, 'upstreams' | 'upstreamUsage'>, vault: Vault, usage: UpstreamUsage) {
    this.#store = store
    this.#secrets = new OpenedSecrets(vault)
    this.#usage = usage
  }

  /** Lists the enabled upstreams that the caller may use, by name. */
  async list(caller: Caller): Promise<OfferedUpstream[]> {
    const known = await this.#of(caller.orgId)
    return [...known.values()].flatMap((each) => {
      const offered = toOffered(each, caller)
      return offered === undefined ? [] : [offered]
    })
  }

  /** Returns an upstream. @throws Refusal `upstream_unknown`, also if the key may not use it. */
  async get(caller: Caller, name: string): Promise<OfferedUpstream> {
    const known = await this.#find(caller.orgId, name)
    return (known && toOffered(known, caller)) ?? unknownUpstream(name)
  }

  /** Returns how to connect to an upstream. @throws Refusal `upstream_unknown`, also if the key may not use it. */
  async target(caller: Caller, name: string): Promise<UpstreamTarget> {
    const known = await this.#find(caller.orgId, name)
    const tools = grantedTools(caller, name)
    if (known === undefined || (tools !== 'all' && tools.size === 0)) return unknownUpstream(name)
    const { row, listed, suspended } = known
    const { id, url, timeoutMs } = row
    return { id, name: row.name, url, timeoutMs, secrets: this.#secrets.of(row), tools, listed, suspended }
  }

  /**
   * Returns the sums of the calls of the caller's organization, by group; a key that is limited to tools gets its own only.
   * @param query first and last day, inclusive, such as `2027-01-31` (by default 30 days up to today), and the grouping.
   * @throws Refusal `invalid_argument`.
   */
  async usage(
    { orgId, keyId, tools }: Caller,
    { start, end, groupBy }: { start?: string | undefined; end?: string | undefined; groupBy: UsageGroup },
  ): Promise<UpstreamTotals[]> {
    const untilMs = dayMsOf('end', end) + dayMs
    const { from, until } = toPeriod({ field: 'start', text: start }, { field: 'end', untilMs })
    await this.#usage.write()
    const rows = await this.#store.upstreamUsage.list(orgId, from, until)
    return totalsBy(groupBy, tools === null ? rows : rows.filter((row) => row.keyId === keyId))
  }

  /** Reads the database if the name is not cached, since the upstream may be new. */
  async #find(orgId: string, name: string): Promise<Known | undefined> {
    const cached = (await this.#of(orgId)).get(name)
    if (cached) return cached
    return (await this.#read(orgId)).get(name)
  }

  async #of(orgId: string): Promise<ReadonlyMap<string, Known>> {
    return this.#ofOrgs.get(orgId) ?? this.#read(orgId)
  }

  async #read(orgId: string): Promise<ReadonlyMap<string, Known>> {
    const rows = await this.#store.upstreams.page(orgId, '', upstreamsMax)
    const known = new Map(rows.filter(({ enabled }) => enabled === 1).map((row) => [row.name, this.#parse(row)]))
    this.#ofOrgs.set(orgId, known)
    return known
  }

  #parse(row: UpstreamRow): Known {
    const version = `${row.id} ${row.updatedAt}`
    const parsed = this.#parsed.get(version)
    if (parsed) return parsed
    const listing = row.listing === null ? null : (JSON.parse(row.listing) as UpstreamListing)
    const changed = row.changedListing === null ? null : (JSON.parse(row.changedListing) as UpstreamListing)
    const suspended = new Set(listing && changed ? changedTools(listing, changed) : [])
    const listed = new Set(listing?.tools.map(({ name }) => name))
    const known = { row, listing, listed, suspended }
    this.#parsed.set(version, known)
    return known
  }
}

function toOffered({ row, listing, suspended }: Known, caller: Caller): OfferedUpstream | undefined {
  const granted = grantedTools(caller, row.name)
  if (granted !== 'all' && granted.size === 0) return undefined
  const isOffered = ({ name }: { name: string }) => (granted === 'all' || granted.has(name)) && !suspended.has(name)
  return {
    name: row.name,
    displayName: row.displayName,
    description: row.description,
    tags: JSON.parse(row.tags) as string[],
    listing: listing && { ...listing, tools: listing.tools.filter(isOffered) },
  }
}

function unknownUpstream(name: string): never {
  throw new Refusal('upstream_unknown', { upstream: name.slice(0, 128) })
}
