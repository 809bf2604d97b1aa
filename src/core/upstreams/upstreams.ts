import { LRUCache } from 'lru-cache'
import { Refusal } from '../../base/errors.ts'
import type { Store } from '../../store/store.ts'
import type { UpstreamRow } from '../../store/upstream-rows.ts'
import type { Vault } from '../access/vault.ts'
import type { Caller } from '../caller.ts'
import { ReadCache } from '../read-cache.ts'
import { dayMs, dayMsOf, toPeriod } from '../times.ts'
import { invalid } from './checks.ts'
import { grantedTools } from './grants.ts'
import { changedTools, type UpstreamListing, type UpstreamTool } from './listing.ts'
import { loginRequired } from './login-required.ts'
import { type ArgumentConstraint, constraintsOf } from './policy.ts'
import { OpenedSecrets, type UpstreamSecrets } from './secrets.ts'
import { type ApprovedTools, approvedOf, type SeenTools } from './seen-tools.ts'
import type { StoredCredentials } from './stored-credentials.ts'
import { totalsBy, type UpstreamTotals, type UpstreamUsage, type UsageGroup } from './usage.ts'

/** Maximum number of organizations whose upstreams are cached. */
const orgsMax = 1_000
/** Maximum number of upstreams of one organization. */
export const upstreamsMax = 200

/** Maximum number of results of a search, before those that the caller may not use are left out. */
const hitsMax = 10_000

/** An upstream as callers see it, without its address and secrets. */
export interface OfferedUpstream {
  name: string
  displayName: string
  description: string
  tags: readonly string[]
  /** Whether the caller may use every method of the upstream, not only some of its tools. */
  offersAll: boolean
  /** The tools that the caller may call, the prompts and the resources; `null` until they were read once. */
  listing: UpstreamListing | null
}

/** A result of a search: a tool, or the upstream itself if `tool` is empty. */
export interface FoundTool {
  upstream: OfferedUpstream
  tool: string
}

/** An upstream as the gateway connects to it. */
export interface UpstreamTarget {
  id: string
  orgId: string
  name: string
  transport: UpstreamRow['transport']
  url: string
  /** As its row has it; `null` unless the transport is `stdio`. */
  program: string | null
  timeoutMs: number
  secrets: UpstreamSecrets
  /** ID of the key whose tokens or values are used; empty for those of the organization. */
  credentialOf: string
  /** Names of the tools that the caller may call; `all` if its key may call every tool. */
  tools: 'all' | ReadonlySet<string>
  /** Whether `tools` contains read-only tools only, since the key may call no others. */
  readOnly: boolean
  /** Constraints on arguments, by the name of the tool. */
  constraints: ReadonlyMap<string, ArgumentConstraint>
  /** The approved tools; `null` until they were read once. */
  approved: ApprovedTools | null
  /** When the tools were read, as ISO 8601; `null` if never. */
  listedAt: string | null
  /** Names of suspended tools: new ones, and those whose description or schema has changed since it was approved. */
  suspended: ReadonlySet<string>
}

/** The capability that each operation requires. */
export const upstreamNeeds = {
  list: 'upstreams.read',
  get: 'upstreams.read',
  search: 'upstreams.read',
  usage: 'upstreams.read',
  target: 'upstreams.call',
} as const

interface Offer {
  mode: UpstreamRow['credentialMode']
  target: UpstreamTarget
}

interface Known {
  row: UpstreamRow
  listing: UpstreamListing | null
  approved: ApprovedTools | null
  suspended: ReadonlySet<string>
}

/** The MCP servers that an organization has registered, as its keys see them. */
export class Upstreams {
  readonly #store: Pick<Store, 'version' | 'upstreams' | 'upstreamUsage' | 'upstreamSearch'>
  readonly #secrets: OpenedSecrets
  readonly #usage: UpstreamUsage
  readonly #credentials: StoredCredentials
  readonly #seen: SeenTools
  readonly #ofOrgs: ReadCache<ReadonlyMap<string, Known>>
  /** How each caller connects; a caller and a row are the same objects until they change. */
  readonly #offers = new WeakMap<Caller, WeakMap<Known, Offer>>()
  /** Parsed listings, by ID and time of the last change of the row. */
  readonly #parsed = new LRUCache<string, Known>({ max: orgsMax })

  constructor(
    store: Pick<Store, 'version' | 'upstreams' | 'upstreamUsage' | 'upstreamSearch'>,
    vault: Vault,
    usage: UpstreamUsage,
    credentials: StoredCredentials,
    seen: SeenTools,
  ) {
    this.#store = store
    this.#ofOrgs = new ReadCache(store, orgsMax, (orgId) => this.#read(orgId))
    this.#secrets = new OpenedSecrets(vault)
    this.#usage = usage
    this.#credentials = credentials
    this.#seen = seen
  }

  /** Lists the enabled upstreams that the caller may use, by name. */
  async list(caller: Caller): Promise<OfferedUpstream[]> {
    const known = await this.#ofOrgs.get(caller.orgId)
    return [...known.values()].flatMap((each) => {
      const offered = this.#offered(each, caller)
      return offered === undefined ? [] : [offered]
    })
  }

  /** Returns an upstream. @throws Refusal `upstream_unknown`, also if the key may not use it. */
  async get(caller: Caller, name: string): Promise<OfferedUpstream> {
    const known = await this.#find(caller.orgId, name)
    return (known && this.#offered(known, caller)) ?? unknownUpstream(name)
  }

  /**
   * Searches the names, descriptions and schemas of the upstreams and tools that the caller may use.
   * @param match whether a result must contain all words or any.
   * @returns upstreams, and their tools, best first. `tool` is empty for an upstream itself.
   */
  async search(caller: Caller, query: string, match: 'all' | 'any'): Promise<FoundTool[]> {
    const hits = await this.#store.upstreamSearch.find(caller.orgId, query, match, hitsMax)
    const known = [...(await this.#ofOrgs.get(caller.orgId)).values()]
    const offered = new Map(
      known.map((each) => {
        const upstream = this.#offered(each, caller)
        return [each.row.id, { upstream, tools: new Set(upstream?.listing?.tools.map(({ name }) => name)) }] as const
      }),
    )
    return hits.flatMap(({ upstreamId, tool }) => {
      const { upstream, tools } = offered.get(upstreamId) ?? {}
      return upstream && (tool === '' || tools?.has(tool)) ? [{ upstream, tool }] : []
    })
  }

  /**
   * Returns how to connect to an upstream.
   * @throws Refusal `upstream_unknown`, also if the key may not use it; `upstream_login_required` if it must have a
   * credential of its own.
   */
  async target(caller: Caller, name: string): Promise<UpstreamTarget> {
    const cached = (await this.#ofOrgs.get(caller.orgId)).get(name)
    const known = cached && this.#offers.get(caller)?.get(cached)
    const { mode, target: offered } = known ?? (await this.#target(caller, name))
    const target = mode === 'shared' ? offered : await this.#withCredential(caller, name, { mode, target: offered })
    const suspended = this.#seen.suspended(target)
    return suspended === target.suspended ? target : { ...target, suspended }
  }

  async #withCredential(caller: Caller, name: string, { mode, target }: Offer): Promise<UpstreamTarget> {
    const own = await this.#credentials.get({ upstreamId: target.id, keyId: caller.keyId })
    if (own === null) {
      if (mode === 'per_key_or_shared') return target
      throw loginRequired(name, caller.keyId, 'this key has no credential of its own')
    }
    const { secrets } = target
    const { credential } = secrets
    return {
      ...{ ...target, credentialOf: caller.keyId },
      ...(own.kind === 'values' &&
        credential && { secrets: { ...secrets, credential: { ...credential, values: own.values } } }),
    }
  }

  /** Returns an upstream that accepts credentials of keys. @throws Refusal as `target`; `invalid_argument`. */
  async ownTarget(caller: Caller, name: string): Promise<UpstreamTarget> {
    const { mode, target } = await this.#target(caller, name)
    if (mode === 'shared') throw invalid('name', `is of an upstream whose keys share one credential: ${name}`)
    return { ...target, credentialOf: caller.keyId }
  }

  async #target(caller: Caller, name: string): Promise<Offer> {
    const known = await this.#find(caller.orgId, name)
    if (known === undefined) return unknownUpstream(name)
    const offer = this.#offers.get(caller)?.get(known)
    if (offer) return offer
    const granted = grantedTools(caller, name)
    if (granted !== 'all' && granted.size === 0) return unknownUpstream(name)
    const { row, approved, suspended } = known
    const { id, orgId, transport, url, program, timeoutMs, listedAt } = row
    const target = {
      ...{
        id,
        orgId,
        name: row.name,
        transport,
        url,
        program,
        timeoutMs,
        secrets: this.#secrets.of(row),
        credentialOf: '',
      },
      ...{ tools: permittedTools(known, caller), approved, listedAt, suspended },
      ...{ readOnly: caller.upstreamPolicy?.read_only === true },
      constraints: constraintsOf(caller.upstreamPolicy, name),
    }
    const made: Offer = { mode: row.credentialMode, target }
    const ofCaller = this.#offers.get(caller)
    if (ofCaller) ofCaller.set(known, made)
    else this.#offers.set(caller, new WeakMap([[known, made]]))
    return made
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

  #offered(known: Known, caller: Caller): OfferedUpstream | undefined {
    const { id, listedAt, credentialMode } = known.row
    const { approved } = known
    const credentials = credentialMode === 'shared' ? [''] : ['', caller.keyId]
    const suspended = credentials.reduce(
      (before, credentialOf) => this.#seen.suspended({ id, approved, listedAt, credentialOf, suspended: before }),
      known.suspended,
    )
    return toOffered({ ...known, suspended }, caller)
  }

  /** Reads the database if the name is not cached, since the upstream may be new. */
  async #find(orgId: string, name: string): Promise<Known | undefined> {
    const cached = (await this.#ofOrgs.get(orgId)).get(name)
    return cached ?? (await this.#ofOrgs.latest(orgId)).get(name)
  }

  async #read(orgId: string): Promise<ReadonlyMap<string, Known>> {
    const rows = await this.#store.upstreams.page(orgId, '', upstreamsMax)
    return new Map(rows.filter(({ enabled }) => enabled === 1).map((row) => [row.name, this.#parse(row)]))
  }

  #parse(row: UpstreamRow): Known {
    const version = `${row.id} ${row.updatedAt}`
    const parsed = this.#parsed.get(version)
    if (parsed) return parsed
    const listing = row.listing === null ? null : (JSON.parse(row.listing) as UpstreamListing)
    const changed = row.changedListing === null ? null : (JSON.parse(row.changedListing) as UpstreamListing)
    const suspended = new Set(listing && changed ? changedTools(listing, changed) : [])
    const approved = listing && approvedOf(listing.tools)
    const known = { row, listing, approved, suspended }
    this.#parsed.set(version, known)
    return known
  }
}

/** Returns the tools that a caller may call: those of its key, and only read-only ones if it is limited to these. */
function permittedTools({ row, listing }: Known, caller: Caller): 'all' | ReadonlySet<string> {
  const granted = grantedTools(caller, row.name)
  if (caller.upstreamPolicy?.read_only !== true) return granted
  const reading = listing?.tools.filter(({ annotations }) => annotations?.readOnlyHint === true) ?? []
  return new Set(reading.map(({ name }) => name).filter((name) => granted === 'all' || granted.has(name)))
}

/** Shows a model the constraint on the arguments of a tool. */
const narrowed = (tool: UpstreamTool, constraint: ArgumentConstraint | undefined): UpstreamTool =>
  constraint === undefined
    ? tool
    : { ...tool, inputSchema: { type: 'object', allOf: [tool.inputSchema, constraint.schema] } }

function toOffered(known: Known, caller: Caller): OfferedUpstream | undefined {
  const { row, listing, suspended } = known
  const granted = grantedTools(caller, row.name)
  if (granted !== 'all' && granted.size === 0) return undefined
  const permitted = permittedTools(known, caller)
  const isOffered = ({ name }: { name: string }) => (permitted === 'all' || permitted.has(name)) && !suspended.has(name)
  const constraints = constraintsOf(caller.upstreamPolicy, row.name)
  return {
    name: row.name,
    displayName: row.displayName,
    description: row.description,
    tags: JSON.parse(row.tags) as string[],
    offersAll: permitted === 'all',
    listing: listing && {
      ...listing,
      ...(permitted !== 'all' && { prompts: [], resources: [], templates: [] }),
      tools: listing.tools.filter(isOffered).map((tool) => narrowed(tool, constraints.get(tool.name))),
    },
  }
}

function unknownUpstream(name: string): never {
  throw new Refusal('upstream_unknown', { upstream: name.slice(0, 128) })
}
