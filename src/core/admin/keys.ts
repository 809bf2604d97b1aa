import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Rows } from '../../store/admin-store.ts'
import type { KeyRow } from '../../store/store.ts'
import { placeOfEnv } from '../access/key-env.ts'
import { formOf, newKeyRow, newSecret, type SecretForm } from '../access/keys.ts'
import { checkVariables } from '../access/variables.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import { checkSandboxName } from '../sandboxes/names.ts'
import { isUpstreamGrant } from '../upstreams/grants.ts'
import { checkPolicy, type UpstreamPolicy } from '../upstreams/policy.ts'
import { type Admin, type ChangeContext, checkFuture, checkName, requireInOrg, unknown, withAudit } from './admin.ts'

/** Settings of a key. An absent one keeps its value; for a new key it is not set. */
export interface KeySettings {
  /** For display only. */
  name?: string
  profile?: string
  /** ISO 8601; `null` for no expiry. */
  expires_at?: string | null
  /** Variables of its runs. They override those of the profile, and those of a call override them. */
  env_vars?: Record<string, unknown>
  /** Names of the tools that it may use; `null` for all tools of its profile. */
  tools?: readonly string[] | null
  /** Limits at upstreams; `null` for no further limits. Replaces all previous ones. */
  upstream_policy?: UpstreamPolicy | null
  /** Namespaces of sandboxes that it may use; `null` for all. */
  namespaces?: readonly string[] | null
}

/** A key as administrators see it, without its secret and the values of its variables. */
export interface KeyView {
  id: string
  org_id: string
  name: string
  /** First characters of its secret; `null` for a key without one. */
  prefix: string | null
  profile: string
  env_names: string[]
  tools: readonly string[] | null
  upstream_policy: UpstreamPolicy | null
  namespaces: readonly string[] | null
  created_at: string
  expires_at: string | null
  revoked_at: string | null
}

export interface KeyWithSecret extends KeyView {
  /** Returned only once. */
  secret: string
}

/**
 * Creates a key.
 * @param settings with the form of its secret, which it keeps.
 * @param knownTools names of all tools.
 * @throws Refusal forbidden, not_found, invalid_argument.
 */
export async function createKey(
  on: ChangeContext,
  admin: Admin,
  orgId: string,
  { secret_form = 'glovebox', ...settings }: KeySettings & { secret_form?: SecretForm },
  knownTools: readonly string[],
): Promise<KeyWithSecret> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  const { row, secret } = newKeyRow(on.region, { orgId, profile: 'default', name: '' }, secret_form)
  const key = { ...row, ...(await checkKeySettings(on, row, { profile: row.profile, ...settings }, knownTools)) }
  await withAudit(
    on.store,
    { admin, action: 'key.create', orgId, target: key.id, details: auditDetails(settings) },
    (rows) => rows.keys.ensure(key),
  )
  return { ...toView(on, key), secret }
}

/** Lists the keys of an organization, oldest first. */
export async function listKeys(
  on: ChangeContext,
  admin: Admin,
  orgId: string,
  asked: PageRequest,
): Promise<Page<KeyView>> {
  await requireInOrg(on.store, admin, 'member', orgId)
  const { items, nextCursor } = await page(
    asked,
    ['', ''],
    ({ createdAt, id }: KeyRow) => [createdAt, id],
    ([createdAt, id], limit) => on.store.keys.page(orgId, { createdAt, id }, limit),
  )
  return { items: items.map((key) => toView(on, key)), nextCursor }
}

/** Returns a key. @throws Refusal not_found, also for a key of another organization. */
export async function getKey(on: ChangeContext, admin: Admin, orgId: string, id: string): Promise<KeyView> {
  await requireInOrg(on.store, admin, 'member', orgId)
  return toView(on, await ofOrg(on, orgId, id))
}

/** Changes the given settings of a key. @throws Refusal forbidden, not_found, key_revoked, invalid_argument. */
export async function updateKey(
  on: ChangeContext,
  admin: Admin,
  { orgId, id }: { orgId: string; id: string },
  settings: KeySettings,
  knownTools: readonly string[],
): Promise<KeyView> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  const key = await ofOrg(on, orgId, id)
  const changes = await checkKeySettings(on, key, settings, knownTools)
  if (Object.keys(changes).length === 0) return toView(on, key)
  await withAudit(
    on.store,
    { admin, action: 'key.update', orgId, target: id, details: auditDetails(settings) },
    async ({ keys }) => {
      if (!(await keys.update(id, changes))) throw new Refusal('key_revoked', { key: id })
    },
  )
  return toView(on, { ...key, ...changes })
}

/**
 * Replaces the secret of a key.
 * @param overlapSeconds time for which the previous secret stays valid.
 * @throws Refusal forbidden, not_found, key_revoked.
 */
export async function rotateKey(
  on: ChangeContext,
  admin: Admin,
  { orgId, id }: { orgId: string; id: string },
  overlapSeconds: number,
): Promise<KeyWithSecret> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  const key = await ofOrg(on, orgId, id)
  const { secret, secretHash, prefix } = newSecret(on.region, formOf(key))
  const previous = {
    previousHash: overlapSeconds > 0 ? key.secretHash : null,
    previousUntil: overlapSeconds > 0 ? new Date(Date.now() + overlapSeconds * 1_000).toISOString() : null,
  }
  const details = { overlap_seconds: overlapSeconds }
  await withAudit(on.store, { admin, action: 'key.rotate', orgId, target: id, details }, async ({ keys }) => {
    if (!(await keys.rotate(id, { secretHash, prefix, ...previous }))) throw new Refusal('key_revoked', { key: id })
  })
  return { ...toView(on, { ...key, prefix }), secret }
}

/**
 * Revokes a key permanently and cancels its running executions.
 * @returns whether this call revoked it.
 * @throws Refusal forbidden, not_found.
 */
export async function revokeKey(on: ChangeContext, admin: Admin, orgId: string, id: string): Promise<boolean> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  const { revokedAt } = await ofOrg(on, orgId, id)
  if (revokedAt !== null) return false
  const revoke = ({ keys }: Rows) => keys.revoke(id, timestamp())
  return withAudit(on.store, { admin, action: 'key.revoke', orgId, target: id }, revoke)
}

async function ofOrg({ store }: ChangeContext, orgId: string, id: string): Promise<KeyRow> {
  const key = await store.keys.get(id)
  if (key === undefined || key.orgId !== orgId || key.secretHash === null) throw unknown('key', id)
  return key
}

/** Maximum number of stored profiles that a refusal lists, in addition to those of the configuration. */
const namedMax = 50
/** Maximum number of tools and upstreams that a key can be limited to. */
const toolsMax = 256
/** Maximum number of namespaces that a key can be limited to. */
const namespacesMax = 64

/** Checks settings of a key. @returns them as they are stored. @throws Refusal invalid_argument. */
export async function checkKeySettings(
  { store, profiles, vault }: ChangeContext,
  key: Pick<KeyRow, 'id' | 'orgId'>,
  {
    name,
    profile,
    expires_at: expiresAt,
    env_vars: variables,
    tools,
    namespaces,
    upstream_policy: policy,
  }: KeySettings,
  knownTools: readonly string[],
) {
  if (name !== undefined && name !== '') checkName('name', name)
  if (profile !== undefined && (await profiles.get(key.orgId, profile)) === undefined) {
    const stored = await store.storedProfiles.page(key.orgId, '', namedMax)
    const offered = [...profiles.offeredTo(key.orgId), ...stored].map(({ name }) => name).join(', ')
    const problem = `must be the name of a profile (${offered}); ${JSON.stringify(profile.slice(0, 64))} does not exist`
    throw new Refusal('invalid_argument', { field: 'profile', problem })
  }
  if (tools && tools.length > toolsMax) {
    throw new Refusal('invalid_argument', { field: 'tools', problem: `has more than ${toolsMax} entries` })
  }
  const odd = tools?.find((tool) => !knownTools.includes(tool) && !isUpstreamGrant(tool))
  if (odd !== undefined) {
    const problem = `must contain names of tools (${knownTools.join(', ')}) or of upstreams (vendor/name, vendor/name#tool); ${odd.slice(0, 64)} does not exist`
    throw new Refusal('invalid_argument', { field: 'tools', problem })
  }
  if (policy) checkPolicy(policy)
  if (namespaces) {
    if (namespaces.length === 0 || namespaces.length > namespacesMax) {
      const problem = `must have 1 to ${namespacesMax} entries, or be null for all namespaces`
      throw new Refusal('invalid_argument', { field: 'namespaces', problem })
    }
    for (const namespace of namespaces) checkSandboxName('namespaces', namespace)
  }
  const env = variables && checkVariables(variables)
  const sealed = env && (Object.keys(env).length === 0 ? null : vault.seal(placeOfEnv(key.id), JSON.stringify(env)))
  return {
    ...(name !== undefined && { name }),
    ...(profile !== undefined && { profile }),
    ...(expiresAt !== undefined && { expiresAt: expiresAt && checkFuture('expires_at', expiresAt) }),
    ...(sealed !== undefined && { env: sealed }),
    ...(tools !== undefined && { tools: tools && JSON.stringify(tools) }),
    ...(policy !== undefined && { upstreamPolicy: policy && JSON.stringify(policy) }),
    ...(namespaces !== undefined && { namespaces: namespaces && JSON.stringify(namespaces) }),
  }
}

/** Returns settings as the audit log records them: variables by name only. */
const auditDetails = ({ env_vars: variables, ...rest }: KeySettings): Record<string, unknown> => ({
  ...rest,
  ...(variables && { env_names: Object.keys(variables) }),
})

/** Returns the settings of a key, with the values of its variables. */
export function settingsOfKey({ vault }: Pick<ChangeContext, 'vault'>, key: KeyRow): Required<KeySettings> {
  const { id, name, profile, expiresAt, env, tools, upstreamPolicy, namespaces } = key
  return {
    name,
    profile,
    expires_at: expiresAt,
    env_vars: env === null ? {} : (JSON.parse(vault.open(placeOfEnv(id), env)) as Record<string, string>),
    tools: tools === null ? null : (JSON.parse(tools) as string[]),
    upstream_policy: upstreamPolicy === null ? null : (JSON.parse(upstreamPolicy) as UpstreamPolicy),
    namespaces: namespaces === null ? null : (JSON.parse(namespaces) as string[]),
  }
}

function toView(on: ChangeContext, key: KeyRow): KeyView {
  const { id, orgId, prefix, createdAt, revokedAt } = key
  const { env_vars: variables, ...settings } = settingsOfKey(on, key)
  return {
    ...{ id, org_id: orgId, prefix },
    ...settings,
    env_names: Object.keys(variables),
    created_at: createdAt,
    revoked_at: revokedAt,
  }
}
