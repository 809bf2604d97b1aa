/** Rows of upstreams: MCP servers that keys reach through the gateway, and how often they were called. */

export interface UpstreamRow {
  id: string
  orgId: string
  /** `vendor/name`, unique in the organization. */
  name: string
  displayName: string
  description: string
  /** JSON array of strings. */
  tags: string
  url: string
  timeoutMs: number
  enabled: number
  /** Headers and credentials as JSON, sealed. */
  secrets: string
  /** The approved tools, prompts and resources as JSON; `null` until they were read for the first time. */
  listing: string | null
  listedAt: string | null
  /** A later listing with changed tools, which an administrator has not approved yet. */
  changedListing: string | null
  createdAt: string
  updatedAt: string
}

/** Calls of one tool by one key on one day. `tool` is empty for other methods. */
export interface UpstreamUsageRow {
  orgId: string
  day: string
  keyId: string
  upstream: string
  tool: string
  calls: number
  /** Calls that the upstream, or the way to it, failed. */
  failures: number
  /** Sum over all calls. */
  latencyMs: number
  /** Of request and response bodies. */
  bytes: number
}

export type UpstreamChanges = Partial<Omit<UpstreamRow, 'id' | 'orgId' | 'createdAt'>>

export interface UpstreamRows {
  /** @returns `false` when the organization already has an upstream of this name. */
  create(upstream: UpstreamRow): Promise<boolean>
  get(orgId: string, name: string): Promise<UpstreamRow | undefined>
  /** By name. */
  page(orgId: string, afterName: string, limit: number): Promise<UpstreamRow[]>
  count(orgId: string): Promise<number>
  /** @returns whether it exists. */
  update(id: string, changes: UpstreamChanges): Promise<boolean>
  remove(id: string): Promise<boolean>
}

export interface UpstreamUsageRows {
  /** Adds to the counts, in one transaction. */
  add(counts: readonly UpstreamUsageRow[]): Promise<void>
  /** By day, key, upstream and tool. @param untilDay exclusive. */
  list(orgId: string, fromDay: string, untilDay: string): Promise<UpstreamUsageRow[]>
}
