import { timestamp } from '../../../base/clock.ts'
import { Refusal } from '../../../base/errors.ts'
import type { KeyRow } from '../../../store/store.ts'
import { formOf } from '../../access/keys.ts'
import { checkKeySettings, createKey, type KeySettings, revokeKey, settingsOfKey, updateKey } from '../keys.ts'
import type { DeclaredKey } from './declaration.ts'
import { changedFields, checksOf } from './differences.ts'
import type { OrgWork } from './org-work.ts'
import { applyLimits } from './settings.ts'

/** What absent settings of a declared key mean. */
const defaults: Required<Omit<KeySettings, 'name'>> = {
  profile: 'default',
  expires_at: null,
  env_vars: {},
  tools: null,
  upstream_policy: null,
  namespaces: null,
}

/** Creates and changes keys. A key is recognized by its name; expired and revoked keys are not. */
export async function applyKeys(org: OrgWork, declared: Readonly<Record<string, DeclaredKey>>): Promise<void> {
  const live = await liveKeys(org)
  for (const [name, { limits, secret_form: form, ...given }] of Object.entries(declared)) {
    const settings = { ...defaults, ...given }
    const path = ['keys', name]
    const [row, ...others] = live.filter((key) => key.name === name)
    if (others.length > 0) {
      org.problem(path, undefined, `is the name of ${others.length + 1} keys; rename or revoke all but one of them`)
      continue
    }
    let keyId = row?.id
    const act = async () => {
      if (row === undefined) keyId = await create(org, name, given, form)
      else await change(org, row, settings, form)
    }
    const checked = row ?? { id: name, orgId: org.id }
    // A profile that could not be created is reported there, and not as missing here.
    const isWrong = org.wrongProfiles.has(settings.profile ?? '')
    const checks = checksOf(given, (part) => checkKeySettings(org.on, checked, part, org.knownTools))
    if (isWrong) {
      const others = checks.filter(({ field }) => field !== 'profile')
      for (const { check } of others) await org.attempt(path, check)
      continue
    }
    if (!(await org.attempt(path, act, checks)) || limits === undefined) continue
    await org.attempt([...path, 'limits'], () => applyLimits(org, limits, { id: keyId!, name }))
  }
}

async function create(org: OrgWork, name: string, given: KeySettings, form: DeclaredKey['secret_form']) {
  const settings = { ...given, name, ...(form !== undefined && { secret_form: form }) }
  const { id, secret } = await createKey(org.on, org.admin, org.id, settings, org.knownTools)
  org.record('create', 'key', name)
  org.work.keys.push({ org: org.name, name, id, secret })
  return id
}

async function change(org: OrgWork, row: KeyRow, settings: typeof defaults, form: DeclaredKey['secret_form']) {
  if (form !== undefined && form !== formOf(row)) {
    const problem = 'cannot be changed; revoke the key to get a new one'
    throw new Refusal('invalid_argument', { field: 'secret_form', problem })
  }
  const expires = settings.expires_at && new Date(settings.expires_at)
  const isTime = expires && !Number.isNaN(expires.getTime())
  const wanted = { ...settings, ...(isTime && { expires_at: expires.toISOString() }) }
  const changed = changedFields(wanted, { ...defaults, ...settingsOfKey(org.on, row) })
  const fields = Object.keys(changed)
  if (fields.length === 0) return
  await updateKey(org.on, org.admin, { orgId: org.id, id: row.id }, changed, org.knownTools)
  org.record('update', 'key', row.name, fields)
}

/** Revokes the keys that are not declared. */
export async function pruneKeys(org: OrgWork, declared: Readonly<Record<string, DeclaredKey>>): Promise<void> {
  const others = (await liveKeys(org)).filter(({ name }) => !Object.hasOwn(declared, name))
  await org.prune('keys', others, async ({ id, name }) => {
    await revokeKey(org.on, org.admin, org.id, id)
    org.record('delete', 'key', name === '' ? id : name)
  })
}

async function liveKeys({ on, id }: OrgWork): Promise<KeyRow[]> {
  const now = timestamp()
  const isLive = ({ secretHash, revokedAt, expiresAt }: KeyRow) =>
    secretHash !== null && revokedAt === null && (expiresAt ?? '~') > now
  return (await on.store.keys.list(id)).filter(isLive)
}
