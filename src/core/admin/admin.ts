import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { InTurn } from '../../base/in-turn.ts'
import type { Outbound } from '../../outbound/outbound.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { AdminTokenRow } from '../../store/admin-rows.ts'
import type { AdminStore, Rows } from '../../store/admin-store.ts'
import type { OrgRow, Store } from '../../store/store.ts'
import type { Profiles } from '../access/profiles.ts'
import type { Vault } from '../access/vault.ts'
import type { ImageJobs } from '../images/image-jobs.ts'
import type { RunEndings } from '../runs/run-endings.ts'
import { dayLength, isRealDay } from '../times.ts'
import type { UpstreamOAuth } from '../upstreams/logins.ts'
import type { UpstreamPrograms } from '../upstreams/programs/programs.ts'
import type { InspectUpstream } from './upstreams.ts'

/** Roles of admin tokens: `owner` has all rights, `admin` all except managing tokens, `member` can only read. */
export const roles = ['owner', 'admin', 'member'] as const satisfies readonly AdminTokenRow['role'][]
export type Role = (typeof roles)[number]

/** An administrator: created from an admin token when a request is authenticated, and passed to every function here. */
export interface Admin {
  /** ID of the token, or `operator` for a command on the machine itself. */
  id: string
  role: Role
  /** ID of the organization that the administrator is limited to; `null` for the whole instance. */
  orgId: string | null
  /** Limits the runtime tools that it may call; absent: those of its role. */
  runtimeTools?: ToolPatterns
}

/** Names of tools, with `*` for any characters. What is included and not excluded is permitted. */
export interface ToolPatterns {
  included: readonly string[]
  excluded: readonly string[]
}

/** The administrator of a command on the machine itself. It has all rights. */
export const operator: Admin = { id: 'operator', role: 'owner', orgId: null }

/** The dependencies of administrative changes. */
export interface ChangeContext {
  store: AdminStore
  vault: Vault
  profiles: Profiles
  /** The `region` setting, which becomes part of new keys. */
  region: string
  /** Checks the addresses of upstreams. */
  outbound: Pick<Outbound, 'check'>
  inspectUpstream: InspectUpstream
  /** Runs upstreams that are programs. */
  programs: UpstreamPrograms
  upstreamOAuth: UpstreamOAuth
  /** Absent in a command: the server then does the work on storage. */
  runner?: Pick<Runner, 'storage' | 'images' | 'files' | 'cancel' | 'attach'>
  /** One search of an organization at a time: all of them share one thread. */
  searches: InTurn
  /** Runs that begin and end; none in a command. */
  endings: RunEndings
  /** Absent in a command. */
  imageJobs?: ImageJobs
}

/** The dependencies of all administrative functions. */
export interface AdminContext extends ChangeContext {
  store: Store
}

const ranks: Record<Role, number> = { member: 0, admin: 1, owner: 2 }

/**
 * Requires a role in one organization.
 * @returns the organization.
 * @throws Refusal forbidden; not_found if the organization does not exist or the administrator belongs to another one.
 */
export async function requireInOrg(
  store: Pick<AdminStore, 'orgs'>,
  admin: Admin,
  role: Role,
  orgId: string,
): Promise<OrgRow> {
  const org = admin.orgId === null || admin.orgId === orgId ? await store.orgs.get(orgId) : undefined
  if (org === undefined) throw unknown('org', orgId)
  requireRole(admin, role)
  return org
}

/** Requires a role on the whole instance. @throws Refusal forbidden. */
export function requireInstance(admin: Admin, role: Role): void {
  requireRole(admin, role)
  if (admin.orgId !== null) throw new Refusal('forbidden', { need: 'a token of the whole instance' })
}

export const hasRole = (admin: Admin, role: Role): boolean => ranks[admin.role] >= ranks[role]

function requireRole(admin: Admin, role: Role): void {
  if (!hasRole(admin, role)) throw new Refusal('forbidden', { need: `the role ${role}` })
}

export const unknown = (what: string, id: string): Refusal =>
  new Refusal('not_found', { what: `The ${what} ${id.slice(0, 128)}` })

/** An action of an administrator, as the audit log records it. */
export interface AdminAction {
  admin: Admin
  /** `<noun>.<verb>`. */
  action: string
  orgId: string | null
  /** ID of the target. */
  target: string
  /** Parameters of the action, without secrets. */
  details?: Readonly<Record<string, unknown>>
}

/** Runs `work` and writes an audit line in one transaction, which is rolled back if `work` throws. */
export const withAudit = <Result>(
  store: Pick<AdminStore, 'audited'>,
  { admin, action, orgId, target, details = {} }: AdminAction,
  work: (rows: Rows) => Promise<Result>,
): Promise<Result> =>
  store.audited(
    { at: timestamp(), orgId, actor: admin.id, action, target, details, personal: null, subject: null },
    work,
  )

/**
 * Checks a name. It is printed in lists and logs, so it may not contain control characters.
 * @throws Refusal invalid_argument.
 */
export function checkName(field: string, name: string): void {
  if (/^[^\p{C}\p{Zl}\p{Zp}]{1,64}$/u.test(name) && name.trim() === name) return
  const problem = 'must be 1 to 64 printable characters without leading or trailing spaces'
  throw new Refusal('invalid_argument', { field, problem })
}

/** Checks a time in the future. @returns the time as it is stored. @throws Refusal invalid_argument. */
export function checkFuture(field: string, time: string): string {
  const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(time)
  const atMs = isTime && isRealDay(time.slice(0, dayLength)) ? Date.parse(time) : Number.NaN
  if (Number.isNaN(atMs)) {
    throw new Refusal('invalid_argument', { field, problem: 'must be a time such as 2027-01-31T12:00:00Z' })
  }
  if (atMs <= Date.now()) throw new Refusal('invalid_argument', { field, problem: 'must be in the future' })
  return new Date(atMs).toISOString()
}
