import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { AdminTokenRow } from '../../store/admin-rows.ts'
import type { OrgRow, Rows, Store } from '../../store/store.ts'
import type { Profiles } from '../access/profiles.ts'
import type { Vault } from '../access/vault.ts'

/** What a token may do: all, all but tokens, or look. */
export const roles = ['owner', 'admin', 'member'] as const satisfies readonly AdminTokenRow['role'][]
export type Role = (typeof roles)[number]

/** Who administers: made at the door from an admin token, passed to every verb of administration. */
export interface Admin {
  /** Id of the token, or `operator` for a command on the machine itself. */
  id: string
  role: Role
  /** The one org that it is for; `null`: the whole instance. */
  orgId: string | null
}

/** Whoever may start commands on the machine may do everything. */
export const operator: Admin = { id: 'operator', role: 'owner', orgId: null }

/** What verbs of administration work on. */
export interface Administered {
  store: Store
  vault: Vault
  profiles: Profiles
  /** Stands in new keys. */
  region: string
  /** Absent in a command, which leaves to the server that runs, or will run, what needs one. */
  runner?: Pick<Runner, 'storage'>
}

const ranks: Record<Role, number> = { member: 0, admin: 1, owner: 2 }

/**
 * Requires a role for something of one org.
 * @returns the org.
 * @throws Refusal forbidden; not_found where there is no such org, also for an admin of another one.
 */
export async function requireInOrg(store: Store, admin: Admin, role: Role, orgId: string): Promise<OrgRow> {
  const org = admin.orgId === null || admin.orgId === orgId ? await store.orgs.get(orgId) : undefined
  if (org === undefined) throw unknown('org', orgId)
  requireRole(admin, role)
  return org
}

/** Requires a role for something of the whole instance. @throws Refusal forbidden. */
export function requireInstance(admin: Admin, role: Role): void {
  requireRole(admin, role)
  if (admin.orgId !== null) throw new Refusal('forbidden', { need: 'a token of the whole instance' })
}

function requireRole(admin: Admin, role: Role): void {
  if (ranks[admin.role] < ranks[role]) throw new Refusal('forbidden', { need: `the role ${role}` })
}

export const unknown = (what: string, id: string): Refusal =>
  new Refusal('not_found', { what: `The ${what} ${id.slice(0, 128)}` })

/** An act of an administrator. */
export interface Act {
  admin: Admin
  /** `<noun>.<verb>`. */
  action: string
  orgId: string | null
  /** Id of what it is done to. */
  target: string
  /** Never a secret. */
  details?: Readonly<Record<string, unknown>>
}

/** Does something and writes it to the audit: both, or neither when `work` throws. */
export const act = <Result>(
  store: Store,
  { admin, action, orgId, target, details = {} }: Act,
  work: (rows: Rows) => Promise<Result>,
): Promise<Result> =>
  store.audited(
    { at: timestamp(), orgId, actor: admin.id, action, target, details, personal: null, subject: null },
    work,
  )

/** A name is printed in lists and logs, so it holds nothing that moves a cursor. @throws Refusal invalid_argument. */
export function checkName(field: string, name: string): void {
  if (/^[^\p{C}\p{Zl}\p{Zp}]{1,64}$/u.test(name) && name.trim() === name) return
  const problem = 'must be 1 to 64 printable characters, no space around them'
  throw new Refusal('invalid_argument', { field, problem })
}

/** @returns the time as it is stored. @throws Refusal invalid_argument where it is none, or over. */
export function checkFuture(field: string, time: string): string {
  const atMs = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(time) ? Date.parse(time) : Number.NaN
  if (Number.isNaN(atMs)) {
    throw new Refusal('invalid_argument', { field, problem: 'must be a time as 2027-01-31T12:00:00Z' })
  }
  if (atMs <= Date.now()) throw new Refusal('invalid_argument', { field, problem: 'is over already' })
  return new Date(atMs).toISOString()
}
