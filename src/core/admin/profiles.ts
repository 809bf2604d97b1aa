import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { StoredProfileRow } from '../../store/admin-rows.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import { type Admin, type ChangeContext, requireInOrg, requireInstance, unknown, withAudit } from './admin.ts'

/** A profile of an organization with the settings that were given, without the values of its variables. */
export interface ProfileView {
  name: string
  settings: Record<string, unknown>
  env_names: string[]
  created_at: string
  updated_at: string
}

/** The same pattern as for profiles of the configuration. */
const names = /^[a-z0-9][a-z0-9_-]{0,63}$/

/**
 * Creates a profile for the keys of an organization. Requires an administrator of the whole instance, because profiles
 * determine which resources of the machine a run can use.
 * @throws Refusal forbidden, not_found, name_taken (also by the configuration), invalid_argument.
 */
export async function createProfile(
  on: ChangeContext,
  admin: Admin,
  orgId: string,
  { name, settings }: { name: string; settings: Record<string, unknown> },
): Promise<ProfileView> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  requireInstance(admin, 'admin')
  if (!names.test(name)) {
    const problem = 'must be 1 to 64 lower-case letters, digits, "-" and "_", the first a letter or digit'
    throw new Refusal('invalid_argument', { field: 'name', problem })
  }
  const taken = new Refusal('name_taken', { what: 'A profile', name })
  if (on.profiles.isConfigured(name)) throw taken
  const at = timestamp()
  const row = { orgId, name, settings: on.profiles.sealed(orgId, name, settings), createdAt: at, updatedAt: at }
  await withAudit(
    on.store,
    { admin, action: 'profile.create', orgId, target: name, details: auditDetails(settings) },
    async (rows) => {
      if (!(await rows.storedProfiles.create(row))) throw taken
    },
  )
  return toView(on, row)
}

/** Lists the profiles of an organization by name, without those of the configuration. */
export async function listProfiles(
  on: ChangeContext,
  admin: Admin,
  orgId: string,
  asked: PageRequest,
): Promise<Page<ProfileView>> {
  await requireInOrg(on.store, admin, 'member', orgId)
  const { items, nextCursor } = await page(
    asked,
    [''],
    ({ name }: StoredProfileRow) => [name],
    ([name], limit) => on.store.storedProfiles.page(orgId, name, limit),
  )
  return { items: items.map((row) => toView(on, row)), nextCursor }
}

/** Returns a profile. @throws Refusal not_found. */
export async function getProfile(on: ChangeContext, admin: Admin, orgId: string, name: string): Promise<ProfileView> {
  await requireInOrg(on.store, admin, 'member', orgId)
  return toView(on, await existing(on, orgId, name))
}

/**
 * Replaces all settings of a profile. Active runs keep their settings; new runs use the new ones within a second.
 * @throws Refusal forbidden, not_found, invalid_argument.
 */
export async function replaceProfile(
  on: ChangeContext,
  admin: Admin,
  { orgId, name }: { orgId: string; name: string },
  settings: Record<string, unknown>,
): Promise<ProfileView> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  requireInstance(admin, 'admin')
  const row = await existing(on, orgId, name)
  const changed = { ...row, settings: on.profiles.sealed(orgId, name, settings), updatedAt: timestamp() }
  await withAudit(
    on.store,
    { admin, action: 'profile.replace', orgId, target: name, details: auditDetails(settings) },
    async (rows) => {
      const { updatedAt } = changed
      if (!(await rows.storedProfiles.update(orgId, name, changed.settings, updatedAt))) throw unknown('profile', name)
    },
  )
  return toView(on, changed)
}

/** Deletes a profile. @throws Refusal forbidden, not_found, in_use if a valid key uses it. */
export async function removeProfile(on: ChangeContext, admin: Admin, orgId: string, name: string): Promise<void> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  requireInstance(admin, 'admin')
  await withAudit(on.store, { admin, action: 'profile.remove', orgId, target: name }, async (rows) => {
    const removed = await rows.storedProfiles.remove(orgId, name)
    if (removed === 'unknown') throw unknown('profile', name)
    if (removed === 'in_use') throw new Refusal('in_use', { what: `The profile ${name}`, by: 'a key' })
  })
}

async function existing({ store }: ChangeContext, orgId: string, name: string): Promise<StoredProfileRow> {
  const row = await store.storedProfiles.get(orgId, name)
  if (row === undefined) throw unknown('profile', name)
  return row
}

/** Returns settings as the audit log records them: variables by name only, since their values can be secrets. */
const auditDetails = ({ env, ...rest }: Record<string, unknown>): Record<string, unknown> => ({
  settings: rest,
  env_names: namesIn(env),
})

const namesIn = (env: unknown): string[] => (typeof env === 'object' && env !== null ? Object.keys(env) : [])

function toView({ profiles }: ChangeContext, row: StoredProfileRow): ProfileView {
  const { env, ...settings } = profiles.settingsOf(row)
  return { name: row.name, settings, env_names: namesIn(env), created_at: row.createdAt, updated_at: row.updatedAt }
}
