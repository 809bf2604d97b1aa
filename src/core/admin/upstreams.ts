import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import type { UpstreamChanges, UpstreamRow } from '../../store/upstream-rows.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import { checkedCount, checkedCredential, checkedHeaders, checkUpstreamName, invalid } from '../upstreams/checks.ts'
import { changedTools, suspiciousTools, type UpstreamListing } from '../upstreams/listing.ts'
import {
  type CredentialSettings,
  hintOf,
  openSecrets,
  sealSecrets,
  type UpstreamCredential,
  type UpstreamSecrets,
} from '../upstreams/secrets.ts'
import { type UpstreamTarget, upstreamsMax } from '../upstreams/upstreams.ts'
import { type Admin, type AdminContext, checkName, requireInOrg, unknown, withAudit } from './admin.ts'

/** Settings of an upstream. An absent one keeps its value, or gets its default. */
export interface UpstreamSettings {
  display_name?: string
  description?: string
  capability_tags?: readonly string[]
  url?: string
  /** Time until a response must begin. */
  timeout_ms?: number
  enabled?: boolean
  /** Sent with every request. Replaces all previous headers. */
  headers?: Readonly<Record<string, string>>
  /** Replaces the previous one; `null` removes it. */
  credential?: CredentialSettings | null
}

/** An upstream without its secrets. */
export interface UpstreamView {
  id: string
  name: string
  display_name: string
  description: string
  capability_tags: string[]
  transport: 'http'
  url: string
  timeout_ms: number
  enabled: boolean
  header_names: string[]
  /** Contains a hint for each value; see `hintOf`. */
  credential: { in: UpstreamCredential['in']; name: string; prefix: string; hints: string[] } | null
  /** Number of approved tools; `null` until they were read once. */
  tools: number | null
  listed_at: string | null
  /** Names of the tools that are suspended until they are approved. */
  changed_tools: string[]
  /** Names of the tools whose description reads like instructions to a model. */
  suspicious_tools: string[]
  created_at: string
  updated_at: string
}

/** A tool that waits for approval. */
export interface ToolChange {
  name: string
  /** `null` for a new tool. */
  approved: object | null
  /** The latest version. A removed tool needs no approval, so it is not listed. */
  current: object | null
}

/**
 * Reads the tools, prompts and resources of an upstream.
 * @throws Refusal `upstream_failed`, `upstream_timeout`, `upstream_misconfigured`.
 */
export type InspectUpstream = (target: UpstreamTarget) => Promise<UpstreamListing>

/** An organization and the name of its upstream. */
export interface UpstreamRef {
  orgId: string
  name: string
}

const timeoutDefaultMs = 30_000
const timeoutMaxMs = 60 * 60_000
const descriptionMax = 1_000
const tagsMax = 32
/**
 * Registers an upstream. `refreshUpstream` then reads its tools.
 * @throws Refusal forbidden, not_found, name_taken, invalid_argument, destination_refused.
 */
export async function createUpstream(
  on: AdminContext,
  admin: Admin,
  { orgId, name }: UpstreamRef,
  { url, ...settings }: UpstreamSettings & { url: string },
): Promise<UpstreamView> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  checkUpstreamName(name)
  if ((await on.store.upstreams.count(orgId)) >= upstreamsMax) {
    throw invalid('name', `would exceed the maximum of ${upstreamsMax} upstreams`)
  }
  const at = timestamp()
  const id = newId('upstream')
  const none: UpstreamSecrets = { headers: {}, credential: null }
  const row: UpstreamRow = {
    ...{
      id,
      orgId,
      name,
      displayName: name,
      description: '',
      tags: '[]',
      url,
      timeoutMs: timeoutDefaultMs,
      enabled: 1,
    },
    ...{ secrets: sealSecrets(on.vault, id, none), listing: null, listedAt: null, changedListing: null },
    ...{ createdAt: at, updatedAt: at },
  }
  const created = { ...row, ...toChanges(on, row, { url, ...settings }) }
  const details = auditDetails({ url, ...settings })
  await withAudit(on.store, { admin, action: 'upstream.create', orgId, target: name, details }, async (rows) => {
    if (!(await rows.upstreams.create(created))) throw new Refusal('name_taken', { what: 'An upstream', name })
  })
  return toView(on, created)
}

/** Lists the upstreams of an organization by name. @throws Refusal not_found. */
export async function listUpstreams(
  on: AdminContext,
  admin: Admin,
  orgId: string,
  asked: PageRequest,
): Promise<Page<UpstreamView>> {
  await requireInOrg(on.store, admin, 'member', orgId)
  const { items, nextCursor } = await page(
    asked,
    [''],
    ({ name }: UpstreamRow) => [name],
    ([name], limit) => on.store.upstreams.page(orgId, name, limit),
  )
  return { items: items.map((row) => toView(on, row)), nextCursor }
}

/** @throws Refusal not_found. */
export async function getUpstream(on: AdminContext, admin: Admin, ref: UpstreamRef): Promise<UpstreamView> {
  await requireInOrg(on.store, admin, 'member', ref.orgId)
  return toView(on, await existing(on, ref))
}

/**
 * Changes the given settings. A running server uses them within a quarter of a second.
 * @throws Refusal forbidden, not_found, invalid_argument, destination_refused.
 */
export async function updateUpstream(
  on: AdminContext,
  admin: Admin,
  ref: UpstreamRef,
  settings: UpstreamSettings,
): Promise<UpstreamView> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const row = await existing(on, ref)
  return change(on, admin, row, 'upstream.update', toChanges(on, row, settings), auditDetails(settings))
}

/** Removes an upstream with its secrets. Its usage figures remain. @throws Refusal forbidden, not_found. */
export async function removeUpstream(on: AdminContext, admin: Admin, ref: UpstreamRef): Promise<void> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const { id, orgId, name } = await existing(on, ref)
  await withAudit(on.store, { admin, action: 'upstream.remove', orgId, target: name }, async (rows) => {
    if (!(await rows.upstreams.remove(id))) throw unknown('upstream', name)
  })
}

/** Reads the tools, prompts and resources of an upstream without storing them. @throws Refusal as `refreshUpstream`. */
export async function testUpstream(on: AdminContext, admin: Admin, ref: UpstreamRef): Promise<UpstreamListing> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  return on.inspectUpstream(targetOf(on, await existing(on, ref)))
}

/**
 * Reads the tools of an upstream. The first listing is approved; in a later one, tools that are new or have changed are
 * suspended until an administrator approves them.
 * @throws Refusal forbidden, not_found, upstream_failed, upstream_timeout, upstream_misconfigured.
 */
export async function refreshUpstream(on: AdminContext, admin: Admin, ref: UpstreamRef): Promise<UpstreamView> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const row = await existing(on, ref)
  const current = await on.inspectUpstream(targetOf(on, row))
  const approved = row.listing === null ? current : (JSON.parse(row.listing) as UpstreamListing)
  const changed = changedTools(approved, current)
  const remaining = new Set(current.tools.map(({ name }) => name))
  const kept = { ...current, tools: approved.tools.filter(({ name }) => remaining.has(name)) }
  const changes: UpstreamChanges = {
    listing: JSON.stringify(kept),
    changedListing: changed.length === 0 ? null : JSON.stringify(current),
    listedAt: timestamp(),
  }
  return change(on, admin, row, 'upstream.refresh', changes, { tools: current.tools.length, changed })
}

/** Returns each tool that waits for approval, with both versions. @throws Refusal not_found. */
export async function changesOfUpstream(on: AdminContext, admin: Admin, ref: UpstreamRef): Promise<ToolChange[]> {
  await requireInOrg(on.store, admin, 'member', ref.orgId)
  const { listing, changedListing } = await existing(on, ref)
  if (listing === null || changedListing === null) return []
  const [approved, current] = [listing, changedListing].map((json) => JSON.parse(json) as UpstreamListing)
  const find = (from: UpstreamListing, tool: string) => from.tools.find(({ name }) => name === tool) ?? null
  return changedTools(approved!, current!).map((name) => ({
    name,
    approved: find(approved!, name),
    current: find(current!, name),
  }))
}

/** Approves the tools as they were last read, so that they can be called. @throws Refusal forbidden, not_found. */
export async function approveUpstream(on: AdminContext, admin: Admin, ref: UpstreamRef): Promise<UpstreamView> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const row = await existing(on, ref)
  if (row.changedListing === null) return toView(on, row)
  const changes = { listing: row.changedListing, changedListing: null }
  return change(on, admin, row, 'upstream.approve', changes, { tools: toView(on, row).changed_tools })
}

async function change(
  on: AdminContext,
  admin: Admin,
  row: UpstreamRow,
  action: string,
  changes: UpstreamChanges,
  details: Readonly<Record<string, unknown>>,
): Promise<UpstreamView> {
  const { id, orgId, name } = row
  const changed = { ...row, ...changes, updatedAt: timestamp() }
  await withAudit(on.store, { admin, action, orgId, target: name, details }, async (rows) => {
    if (!(await rows.upstreams.update(id, { ...changes, updatedAt: changed.updatedAt })))
      throw unknown('upstream', name)
  })
  return toView(on, changed)
}

async function existing({ store }: AdminContext, { orgId, name }: UpstreamRef): Promise<UpstreamRow> {
  const row = await store.upstreams.get(orgId, name)
  if (row === undefined) throw unknown('upstream', name)
  return row
}

function targetOf({ vault }: AdminContext, { id, name, url, timeoutMs, secrets }: UpstreamRow): UpstreamTarget {
  return {
    id,
    name,
    url,
    timeoutMs,
    secrets: openSecrets(vault, id, secrets),
    tools: 'all',
    listed: new Set(),
    suspended: new Set(),
  }
}

function toChanges(on: AdminContext, row: UpstreamRow, settings: UpstreamSettings): UpstreamChanges {
  const { display_name: displayName, description, capability_tags: tags, url, timeout_ms: timeoutMs } = settings
  if (displayName !== undefined) checkName('display_name', displayName)
  if (description !== undefined && description.length > descriptionMax) {
    throw invalid('description', `is longer than ${descriptionMax} characters`)
  }
  for (const tag of checkedCount('capability_tags', tags ?? [], tagsMax)) checkName('capability_tags', tag)
  if (url !== undefined) on.outbound.check('url', url)
  if (timeoutMs !== undefined && !(Number.isInteger(timeoutMs) && timeoutMs >= 1_000 && timeoutMs <= timeoutMaxMs)) {
    throw invalid('timeout_ms', `must be a whole number from 1000 to ${timeoutMaxMs}`)
  }
  const { headers, credential, enabled } = settings
  const old = openSecrets(on.vault, row.id, row.secrets)
  const secrets: UpstreamSecrets = {
    headers: headers === undefined ? old.headers : checkedHeaders(headers),
    credential: credential === undefined ? old.credential : credential && checkedCredential(credential),
  }
  return {
    ...(displayName !== undefined && { displayName }),
    ...(description !== undefined && { description }),
    ...(tags !== undefined && { tags: JSON.stringify(tags) }),
    ...(url !== undefined && { url }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(enabled !== undefined && { enabled: enabled ? 1 : 0 }),
    secrets: sealSecrets(on.vault, row.id, secrets),
  }
}

/** Returns settings as the audit log records them: secrets by name only. */
const auditDetails = ({ headers, credential, ...rest }: UpstreamSettings): Record<string, unknown> => ({
  ...rest,
  ...(headers && { header_names: Object.keys(headers) }),
  ...(credential && { credential: { in: credential.in, name: credential.name, values: credential.values.length } }),
  ...(credential === null && { credential: null }),
})

function toView({ vault }: AdminContext, row: UpstreamRow): UpstreamView {
  const { headers, credential } = openSecrets(vault, row.id, row.secrets)
  const listing = row.listing === null ? null : (JSON.parse(row.listing) as UpstreamListing)
  const current = row.changedListing === null ? listing : (JSON.parse(row.changedListing) as UpstreamListing)
  return {
    id: row.id,
    name: row.name,
    display_name: row.displayName,
    description: row.description,
    capability_tags: JSON.parse(row.tags) as string[],
    transport: 'http',
    url: row.url,
    timeout_ms: row.timeoutMs,
    enabled: row.enabled === 1,
    header_names: Object.keys(headers),
    credential: credential && {
      ...{ in: credential.in, name: credential.name, prefix: credential.prefix },
      hints: credential.values.map(hintOf),
    },
    tools: listing?.tools.length ?? null,
    listed_at: row.listedAt,
    changed_tools: listing && current ? changedTools(listing, current) : [],
    suspicious_tools: current ? suspiciousTools(current) : [],
    created_at: row.createdAt,
    updated_at: row.updatedAt,
  }
}
