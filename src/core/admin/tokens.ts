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
  type ToolPatterns,
  unknown,
  withAudit,
} from './admin.ts'

/** Prefix of every admin token, which distinguishes it from a key. */
export const tokenPrefix = 'gba_'
const secretBytes = 32
const shownCharacters = 4

export interface TokenSettings {
  name: string
  role: Role
  /** ID of the organization that the token is limited to; absent or `null` for the whole instance. */
  org_id?: string | null
  expires_at?: string | null
  /** Limits the runtime tools that the token may call; absent or `null`: those of its role. */
  runtime_tools?: Partial<ToolPatterns> | null
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
  runtime_tools: ToolPatterns | null
}

/** Creates a token and returns its secret, which is not stored. @throws Refusal forbidden, not_found, invalid_argument. */
export async function createToken(
  { store }: AdminContext,
  admin: Admin,
  { name, role, org_id: orgId = null, expires_at: expiresAt = null, runtime_tools: runtimeTools = null }: TokenSettings,
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
    runtimeTools: runtimeTools && JSON.stringify(checkPatterns(runtimeTools)),
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
  if (!secret.startsWith(tokenPrefix)) throw new Refusal('unauthorized')
  return authenticateAdminByHash({ store }, hash('sha256', secret))
}

/** Returns the administrator of a token by the hash of its secret. @throws Refusal unauthorized. */
export async function authenticateAdminByHash(
  { store }: Pick<AdminContext, 'store'>,
  secretHash: string,
): Promise<Admin> {
  const row = await store.adminTokens.findBySecretHash(secretHash)
  if (row === undefined || !isLive(row)) throw new Refusal('unauthorized')
  const { id, role, orgId } = row
  return { id, role, orgId, ...(row.runtimeTools !== null && { runtimeTools: readPatterns(row.runtimeTools) }) }
}

/** Records that a browser was logged in with a token. */
export const recordLogin = ({ store }: AdminContext, admin: Admin): Promise<void> =>
  withAudit(store, { admin, action: 'console.login', orgId: admin.orgId, target: admin.id }, async () => {})

/** Returns whether a token can still be used. */
export async function isLiveToken(store: Store, id: string): Promise<boolean> {
  const row = await store.adminTokens.get(id)
  return row !== undefined && isLive(row)
}

const isLive = ({ revokedAt, expiresAt }: AdminTokenRow): boolean =>
  revokedAt === null && (expiresAt ?? '~') > timestamp()

const patternsMax = 64

/** @throws Refusal invalid_argument. */
function checkPatterns({ included = ['*'], excluded = [] }: Partial<ToolPatterns>): ToolPatterns {
  for (const [field, patterns] of Object.entries({ included, excluded })) {
    if (patterns.length <= patternsMax && patterns.every((pattern) => /^[a-z0-9_*]{1,64}$/.test(pattern))) continue
    const problem = `must be at most ${patternsMax} names of tools, in which * stands for any characters`
    throw new Refusal('invalid_argument', { field: `runtime_tools.${field}`, problem })
  }
  return { included, excluded }
}

const readPatterns = (written: string): ToolPatterns => JSON.parse(written) as ToolPatterns

const toView = ({
  id,
  name,
  role,
  orgId,
  prefix,
  createdAt,
  expiresAt,
  revokedAt,
  ...row
}: AdminTokenRow): TokenView => ({
  id,
  name,
  role,
  org_id: orgId,
  prefix,
  created_at: createdAt,
  expires_at: expiresAt,
  revoked_at: revokedAt,
  runtime_tools: row.runtimeTools === null ? null : readPatterns(row.runtimeTools),
})
