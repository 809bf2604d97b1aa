/** Rows of upstreams (MCP servers that keys reach through the gateway) and of their usage. */

export interface UpstreamRow {
  id: string
  orgId: string
  /** `vendor/name`, unique in the organization. */
  name: string
  displayName: string
  description: string
  /** JSON array of strings. */
  tags: string
  /** `http` is Streamable HTTP, `sse` the HTTP+SSE transport of 2024-11-05, `stdio` a program in a sandbox. */
  transport: 'http' | 'sse' | 'stdio'
  /** Empty for a program. */
  url: string
  /** The program and how it is run, as JSON; `null` for other transports. */
  program: string | null
  timeoutMs: number
  enabled: number
  /** Headers and credentials as JSON, sealed. */
  secrets: string
  /** Which credential a call uses: the one of the organization, the one of its key, or that of its key if it has one. */
  credentialMode: 'shared' | 'per_key' | 'per_key_or_shared'
  /** The approved tools, the prompts and the resources, as JSON; `null` until they were read once. */
  listing: string | null
  listedAt: string | null
  /** The latest listing, as JSON, if it has changed tools that are not approved yet; otherwise `null`. */
  changedListing: string | null
  createdAt: string
  updatedAt: string
}

/** Sums of the calls of one tool by one key on one day. `tool` is empty for methods other than `tools/call`. */
export interface UpstreamUsageRow {
  orgId: string
  day: string
  keyId: string
  upstream: string
  tool: string
  calls: number
  /** Number of calls that failed: the upstream reported an error or could not be reached. */
  failures: number
  /** Total duration of the calls. */
  latencyMs: number
  /** Total size of request and response bodies. */
  bytes: number
}

export type UpstreamChanges = Partial<Omit<UpstreamRow, 'id' | 'orgId' | 'createdAt'>>

export interface UpstreamRows {
  /** Inserts an upstream. @returns `false` if the organization already has an upstream with this name. */
  create(upstream: UpstreamRow): Promise<boolean>
  get(orgId: string, name: string): Promise<UpstreamRow | undefined>
  byId(id: string): Promise<UpstreamRow | undefined>
  /** Lists upstreams by name. */
  page(orgId: string, afterName: string, limit: number): Promise<UpstreamRow[]>
  count(orgId: string): Promise<number>
  /** Changes an upstream. @returns whether it exists. */
  update(id: string, changes: UpstreamChanges): Promise<boolean>
  remove(id: string): Promise<boolean>
}

export interface UpstreamUsageRows {
  /** Adds to the stored sums, in one transaction. */
  add(counts: readonly UpstreamUsageRow[]): Promise<void>
  /** Lists the usage by day, key, upstream and tool. @param untilDay exclusive. */
  list(orgId: string, fromDay: string, untilDay: string): Promise<UpstreamUsageRow[]>
}

/** A result of a search: an upstream, or one of its tools. */
export interface UpstreamHit {
  upstreamId: string
  /** Name of the tool; empty for the upstream itself. */
  tool: string
  /** Higher is better. */
  score: number
}

export interface UpstreamSearch {
  /**
   * Searches the names, descriptions and schemas of the upstreams of an organization, best results first.
   * @param query words in any notation; everything else in it is ignored.
   * @param match whether a result must contain all words or any.
   */
  find(orgId: string, query: string, match: 'all' | 'any', limit: number): Promise<UpstreamHit[]>
}
