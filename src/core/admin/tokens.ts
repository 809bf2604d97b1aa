import { hash, randomBytes } from 'node:crypto'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import type { AdminTokenRow } from '../../store/admin-rows.ts'
import type { Store } from '../../store/store.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import {
  type Admin,
  type AdminContext,
  checkFuture,
  checkName,
  type Role,
  requireInstance,
  unknown,
  withAudit,
} from './admin.ts'

/** Prefix of every admin token, which distinguishes it from a key. */
const tokenPrefix = 'gba_'
const secretBytes = 32
const shownCharacters = 4

export interface TokenSettings {
  name: string
  role: Role
  /** ID of the organization that the token is limited to; absent or `null` for the whole instance. */
  org_id?: string | null
  expires_at?: string | null
}

export interface TokenView {
  id: string
  name: string
  role: Role
  org_id: string | null
  prefix: string
  created_at: string
  expires_at: string | null
  revoked_at: string | null
}

/** Creates a token and returns its secret, which is not stored. @throws Refusal forbidden, not_found, invalid_argument. */
export async function createToken(
  { store }: AdminContext,
  admin: Admin,
  { name, role, org_id: orgId = null, expires_at: expiresAt = null }: TokenSettings,
): Promise<TokenView & { secret: string }> {
  requireInstance(admin, 'owner')
  checkName('name', name)
  if (orgId !== null && (await store.orgs.get(orgId)) === undefined) throw unknown('org', orgId)
  const random = randomBytes(secretBytes).toString('base64url')
  const secret = tokenPrefix + random
  const row: AdminTokenRow = {
    id: newId('token'),
    name,
    role,
    orgId,
    secretHash: hash('sha256', secret),
    prefix: tokenPrefix + random.slice(0, shownCharacters),
    createdAt: timestamp(),
    expiresAt: expiresAt && checkFuture('expires_at', expiresAt),
    revokedAt: null,
  }
  await withAudit(store, { admin, action: 'token.create', orgId, target: row.id, details: { name, role } }, (rows) =>
    rows.adminTokens.create(row),
  )
  return { ...toView(row), secret }
}

/** Lists tokens, oldest first. @throws Refusal forbidden. */
export async function listTokens({ store }: AdminContext, admin: Admin, asked: PageRequest): Promise<Page<TokenView>> {
  requireInstance(admin, 'owner')
  const { items, nextCursor } = await page(
    asked,
    ['', ''],
    ({ createdAt, id }: AdminTokenRow) => [createdAt, id],
    ([createdAt, id], limit) => store.adminTokens.page({ createdAt, id }, limit),
  )
  return { items: items.map(toView), nextCursor }
}

/** Revokes a token. @throws Refusal forbidden, not_found (also for a revoked token). */
export async function revokeToken({ store }: AdminContext, admin: Admin, id: string): Promise<void> {
  requireInstance(admin, 'owner')
  await withAudit(store, { admin, action: 'token.revoke', orgId: null, target: id }, async ({ adminTokens }) => {
    if (!(await adminTokens.revoke(id, timestamp()))) throw unknown('active token', id)
  })
}

/**
 * BOUNDARY: returns the administrator that a secret belongs to. The lookup is by hash and is never cached.
 * @throws Refusal unauthorized.
 */
export async function authenticateAdmin(store: Store, secret: string): Promise<Admin> {
  const row = secret.startsWith(tokenPrefix)
    ? await store.adminTokens.findBySecretHash(hash('sha256', secret))
    : undefined
  const isLive = row !== undefined && row.revokedAt === null && (row.expiresAt ?? '~') > timestamp()
  if (!isLive) throw new Refusal('unauthorized')
  return { id: row.id, role: row.role, orgId: row.orgId }
}

const toView = ({ id, name, role, orgId, prefix, createdAt, expiresAt, revokedAt }: AdminTokenRow): TokenView => ({
  id,
  name,
  role,
  org_id: orgId,
  prefix,
  created_at: createdAt,
  expires_at: expiresAt,
  revoked_at: revokedAt,
})
