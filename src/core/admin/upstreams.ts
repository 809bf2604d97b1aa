import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import type { UpstreamChanges, UpstreamRow } from '../../store/upstream-rows.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import {
  checkedCount,
  checkedCredential,
  checkedHeaders,
  checkedOAuth,
  checkUpstreamName,
  invalid,
} from '../upstreams/checks.ts'
import { changedTools, readAgain, type UpstreamListing } from '../upstreams/listing.ts'
import { checkedVariables, type ProgramSettings } from '../upstreams/programs/program.ts'
import type { UpstreamPrograms } from '../upstreams/programs/programs.ts'
import { toProgramTarget } from '../upstreams/programs/sandbox-spec.ts'
import {
  type CredentialSettings,
  type OAuthRequest,
  openSecrets,
  sealSecrets,
  type UpstreamSecrets,
} from '../upstreams/secrets.ts'
import { approvedOf, type SeenTools } from '../upstreams/seen-tools.ts'
import { StoredCredentials } from '../upstreams/stored-credentials.ts'
import { type UpstreamTarget, upstreamsMax } from '../upstreams/upstreams.ts'
import {
  type Admin,
  type AdminContext,
  type ChangeContext,
  checkName,
  operator,
  requireInOrg,
  unknown,
  withAudit,
} from './admin.ts'
import { checkNetworkRights, checkSecrets, toPlace } from './upstream-place.ts'
import { toView, type UpstreamView } from './upstream-view.ts'

/** Settings of an upstream. An absent one keeps its value, or gets its default. */
export interface UpstreamSettings {
  display_name?: string
  description?: string
  capability_tags?: readonly string[]
  transport?: UpstreamRow['transport']
  /** Address of the server. A program has none. */
  url?: string
  /** The program, if the transport is `stdio`. */
  program?: ProgramSettings
  /** Variables of the program. Replaces all previous ones. */
  env?: Readonly<Record<string, string>>
  /** Time until a response must begin. */
  timeout_ms?: number
  enabled?: boolean
  /** Sent with every request. Replaces all previous headers. */
  headers?: Readonly<Record<string, string>>
  /** Replaces the previous one; `null` removes it. */
  credential?: CredentialSettings | null
  /** Logs in with OAuth instead of a credential; `null` ends that. */
  oauth?: OAuthRequest | null
  /** Which credential a call uses. */
  credential_mode?: UpstreamRow['credentialMode']
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
export type InspectUpstream = (
  target: UpstreamTarget,
  credentials: StoredCredentials,
  programs: UpstreamPrograms,
) => Promise<UpstreamListing>

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
  on: ChangeContext,
  admin: Admin,
  { orgId, name }: UpstreamRef,
  settings: UpstreamSettings,
): Promise<UpstreamView> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  checkNetworkRights(admin, settings)
  checkUpstreamName(name)
  if ((await on.store.upstreams.count(orgId)) >= upstreamsMax) {
    throw invalid('name', `would exceed the maximum of ${upstreamsMax} upstreams`)
  }
  const row = blankUpstream(on, { orgId, name })
  const created = { ...row, ...checkUpstreamSettings(on, row, settings) }
  const details = auditDetails(settings)
  await withAudit(on.store, { admin, action: 'upstream.create', orgId, target: name, details }, async (rows) => {
    if (!(await rows.upstreams.create(created))) throw new Refusal('name_taken', { what: 'An upstream', name })
  })
  return toView(on, created)
}

/** A new upstream, in which every setting has its default. */
export function blankUpstream({ vault }: ChangeContext, { orgId, name }: UpstreamRef): UpstreamRow {
  const at = timestamp()
  const id = newId('upstream')
  const none: UpstreamSecrets = { headers: {}, credential: null }
  return {
    ...{ id, orgId, name, url: '', displayName: name, description: '', tags: '[]', timeoutMs: timeoutDefaultMs },
    ...{ enabled: 1, transport: 'http', program: null, credentialMode: 'shared' },
    ...{ secrets: sealSecrets(vault, id, none), listing: null, listedAt: null, changedListing: null },
    ...{ createdAt: at, updatedAt: at },
  }
}

/** Lists the upstreams of an organization by name. @throws Refusal not_found. */
export async function listUpstreams(
  on: ChangeContext,
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
export async function getUpstream(on: ChangeContext, admin: Admin, ref: UpstreamRef): Promise<UpstreamView> {
  await requireInOrg(on.store, admin, 'member', ref.orgId)
  return toView(on, await existing(on, ref))
}

/**
 * Changes the given settings. A running server uses them within a quarter of a second.
 * @throws Refusal forbidden, not_found, invalid_argument, destination_refused.
 */
export async function updateUpstream(
  on: ChangeContext,
  admin: Admin,
  ref: UpstreamRef,
  settings: UpstreamSettings,
): Promise<UpstreamView> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  checkNetworkRights(admin, settings)
  const row = await existing(on, ref)
  return change(on, admin, row, 'upstream.update', checkUpstreamSettings(on, row, settings), auditDetails(settings))
}

/** Removes an upstream with its secrets. Its usage figures remain. @throws Refusal forbidden, not_found. */
export async function removeUpstream(on: ChangeContext, admin: Admin, ref: UpstreamRef): Promise<void> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const { id, orgId, name } = await existing(on, ref)
  await withAudit(on.store, { admin, action: 'upstream.remove', orgId, target: name }, async (rows) => {
    if (!(await rows.upstreams.remove(id))) throw unknown('upstream', name)
    await rows.upstreamCredentials.removeAll(id)
  })
}

/**
 * Reads the tools, prompts and resources of an upstream without storing them.
 * @returns them, and what a program has written to standard error, without its secrets, with the number of lines on
 * standard output that were no messages.
 * @throws Refusal as `refreshUpstream`.
 */
export async function testUpstream(
  on: AdminContext,
  admin: Admin,
  ref: UpstreamRef,
): Promise<UpstreamListing & { stderr?: string; skipped_lines?: number }> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const row = await existing(on, ref)
  const listing = await inspect(on, row)
  if (row.transport !== 'stdio') return listing
  const target = toProgramTarget(targetOf(on, row))
  return { ...listing, stderr: on.programs.stderrOf(target), skipped_lines: on.programs.skippedLinesOf(target) }
}

/**
 * Reads the tools of an upstream. The first listing is approved; in a later one, tools that are new or have changed are
 * suspended until an administrator approves them.
 * @throws Refusal forbidden, not_found, upstream_failed, upstream_timeout, upstream_misconfigured.
 */
export async function refreshUpstream(on: AdminContext, admin: Admin, ref: UpstreamRef): Promise<UpstreamView> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const row = await existing(on, ref)
  const { changes, details } = readAgain(row.listing, await inspect(on, row))
  return change(on, admin, row, 'upstream.refresh', { ...changes, listedAt: timestamp() }, details)
}

/** Reads the tools of an upstream that were approved before, and stores the listing if it has changed. @throws Refusal as `refreshUpstream`. */
export async function refreshIfChanged(on: AdminContext, seen: SeenTools, ref: UpstreamRef): Promise<void> {
  const row = await existing(on, ref)
  if (row.listing === null || row.enabled === 0) return
  const current = await inspect(on, row)
  const approved = approvedOf((JSON.parse(row.listing) as UpstreamListing).tools)
  seen.compare({ id: row.id, credentialOf: '', approved, listedAt: row.listedAt }, current.tools)
  const { changes, details } = readAgain(row.listing, current)
  if (changes.listing === row.listing && changes.changedListing === row.changedListing) return
  const gateway = { ...operator, id: 'gateway' }
  await change(on, gateway, row, 'upstream.refresh', { ...changes, listedAt: timestamp() }, details)
}

const inspect = (on: AdminContext, row: UpstreamRow): Promise<UpstreamListing> =>
  on.inspectUpstream(targetOf(on, row), new StoredCredentials(on.store, on.vault), on.programs)

/** Returns each tool that waits for approval, with both versions. @throws Refusal not_found. */
export async function changesOfUpstream(on: ChangeContext, admin: Admin, ref: UpstreamRef): Promise<ToolChange[]> {
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
export async function approveUpstream(on: ChangeContext, admin: Admin, ref: UpstreamRef): Promise<UpstreamView> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const row = await existing(on, ref)
  if (row.changedListing === null) return toView(on, row)
  const changes = { listing: row.changedListing, changedListing: null }
  return change(on, admin, row, 'upstream.approve', changes, { tools: toView(on, row).changed_tools })
}

async function change(
  on: ChangeContext,
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

export async function existing({ store }: ChangeContext, { orgId, name }: UpstreamRef): Promise<UpstreamRow> {
  const row = await store.upstreams.get(orgId, name)
  if (row === undefined) throw unknown('upstream', name)
  return row
}

export function targetOf(
  { vault }: ChangeContext,
  { id, orgId, name, transport, url, program, timeoutMs, secrets }: UpstreamRow,
): UpstreamTarget {
  return {
    ...{ id, orgId, name, transport, url, program, timeoutMs },
    secrets: openSecrets(vault, id, secrets),
    credentialOf: '',
    tools: 'all',
    readOnly: false,
    constraints: new Map(),
    approved: null,
    listedAt: null,
    suspended: new Set(),
  }
}

/** Checks settings of an upstream. @returns them as they are stored. @throws Refusal invalid_argument. */
export function checkUpstreamSettings(
  on: ChangeContext,
  row: UpstreamRow,
  settings: UpstreamSettings,
): UpstreamChanges {
  const { display_name: displayName, description, capability_tags: tags, url, timeout_ms: timeoutMs } = settings
  if (displayName !== undefined) checkName('display_name', displayName)
  if (description !== undefined && description.length > descriptionMax) {
    throw invalid('description', `is longer than ${descriptionMax} characters`)
  }
  for (const tag of checkedCount('capability_tags', tags ?? [], tagsMax)) checkName('capability_tags', tag)
  if (url !== undefined && url !== '') on.outbound.check('url', url)
  if (timeoutMs !== undefined && !(Number.isInteger(timeoutMs) && timeoutMs >= 1_000 && timeoutMs <= timeoutMaxMs)) {
    throw invalid('timeout_ms', `must be a whole number from 1000 to ${timeoutMaxMs}`)
  }
  const { credential_mode: credentialMode, enabled } = settings
  const place = toPlace(row, settings)
  const secrets = toSecrets(openSecrets(on.vault, row.id, row.secrets), settings)
  checkSecrets(place, secrets)
  return {
    ...(displayName !== undefined && { displayName }),
    ...(description !== undefined && { description }),
    ...(tags !== undefined && { tags: JSON.stringify(tags) }),
    ...place,
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(enabled !== undefined && { enabled: enabled ? 1 : 0 }),
    ...(credentialMode !== undefined && { credentialMode }),
    secrets: sealSecrets(on.vault, row.id, secrets),
  }
}

function toSecrets(
  { headers, credential, oauth = null, env = {} }: UpstreamSecrets,
  asked: UpstreamSettings,
): UpstreamSecrets {
  const secrets: UpstreamSecrets = {
    headers: asked.headers === undefined ? headers : checkedHeaders(asked.headers),
    credential: asked.credential === undefined ? credential : asked.credential && checkedCredential(asked.credential),
    oauth: asked.oauth === undefined ? oauth : asked.oauth && checkedOAuth(asked.oauth),
    env: asked.env === undefined ? env : checkedVariables(asked.env),
  }
  if (secrets.oauth && secrets.credential) throw invalid('oauth', 'cannot be used together with credential')
  return secrets
}

/** Returns settings as the audit log records them: secrets by name only. */
const auditDetails = ({ headers, env, credential, oauth, ...rest }: UpstreamSettings): Record<string, unknown> => ({
  ...rest,
  ...(env && { env_names: Object.keys(env) }),
  ...(headers && { header_names: Object.keys(headers) }),
  ...(credential && { credential: { in: credential.in, name: credential.name, values: credential.values.length } }),
  ...(credential === null && { credential: null }),
  ...(oauth !== undefined && { oauth: oauth && { client_id: oauth.client_id, scope: oauth.scope } }),
})
