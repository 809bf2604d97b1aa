import { type LoginInstructions, type LoginMethod, UpstreamLogins } from '../upstreams/logins.ts'
import type { OAuthGrant } from '../upstreams/stored-credentials.ts'
import { placeOfCredential, type StoredCredential, StoredCredentials } from '../upstreams/stored-credentials.ts'
import { type Admin, type AdminContext, requireInOrg, withAudit } from './admin.ts'
import { existing, targetOf, type UpstreamRef } from './upstreams.ts'

/** A credential that an upstream uses beside its settings, without its secrets. */
export interface CredentialView {
  /** `null` if the keys of the organization share it. */
  key_id: string | null
  kind: StoredCredential['kind']
  /** Authorization server of a login. */
  issuer: string | null
  scope: string | null
  /** When the current access token expires. */
  expires_at: string | null
  /** Whether the access token is renewed automatically. */
  renews: boolean
  /** Why a new login is required; `null` while none is. */
  problem: string | null
  updated_at: string
}

/**
 * Begins a login whose tokens all keys of the organization use.
 * @throws Refusal forbidden, not_found, invalid_argument, upstream_login_failed.
 */
export async function loginToUpstream(
  on: AdminContext,
  admin: Admin,
  ref: UpstreamRef,
  method: LoginMethod,
): Promise<LoginInstructions> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  return loginsOf(on).begin(targetOf(on, await existing(on, ref)), '', method)
}

/**
 * Completes a login.
 * @param redirectedTo address that the browser was redirected to; `undefined` for a login by device.
 * @returns `false` if the user has not completed it yet.
 * @throws Refusal forbidden, not_found, invalid_argument, upstream_login_failed.
 */
export async function completeUpstreamLogin(
  on: AdminContext,
  admin: Admin,
  ref: UpstreamRef,
  redirectedTo: string | undefined,
): Promise<boolean> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const row = await existing(on, ref)
  const isComplete = await loginsOf(on).complete(targetOf(on, row), '', redirectedTo)
  const { orgId, name } = row
  if (isComplete) await withAudit(on.store, { admin, action: 'upstream.login', orgId, target: name }, async () => {})
  return isComplete
}

/** Lists the logins and the credentials of keys. @throws Refusal not_found. */
export async function listUpstreamCredentials(
  on: AdminContext,
  admin: Admin,
  ref: UpstreamRef,
): Promise<CredentialView[]> {
  await requireInOrg(on.store, admin, 'member', ref.orgId)
  const rows = await on.store.upstreamCredentials.list((await existing(on, ref)).id)
  return rows.flatMap(({ secrets, updatedAt, ...credential }) => {
    if (secrets === null) return []
    const text = on.vault.open(placeOfCredential(credential, 'secrets'), secrets)
    const stored = JSON.parse(text) as StoredCredential
    const login = stored.kind === 'oauth' ? loginView(stored) : noLogin
    return [{ key_id: credential.keyId || null, kind: stored.kind, ...login, updated_at: updatedAt }]
  })
}

/**
 * Removes the login that all keys share, or the credential of one key.
 * @throws Refusal forbidden, not_found.
 */
export async function removeUpstreamCredential(
  on: AdminContext,
  admin: Admin,
  ref: UpstreamRef,
  keyId: string | null,
): Promise<void> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const { id, orgId, name } = await existing(on, ref)
  const details = { key_id: keyId }
  await withAudit(on.store, { admin, action: 'upstream.logout', orgId, target: name, details }, (rows) =>
    rows.upstreamCredentials.remove(id, keyId ?? ''),
  )
}

const loginsOf = ({ store, vault, upstreamOAuth }: AdminContext): UpstreamLogins =>
  new UpstreamLogins(store, vault, new StoredCredentials(store, vault), upstreamOAuth)

const noLogin = { issuer: null, scope: null, expires_at: null, renews: false, problem: null }

const loginView = ({ server, scope, expiresAtMs, refreshToken, problem }: OAuthGrant) => ({
  ...{ issuer: server.issuer, scope, renews: refreshToken !== null && problem === null, problem },
  expires_at: expiresAtMs === null ? null : new Date(expiresAtMs).toISOString(),
})
