/** Applies the declared limits, secrets, volumes, profiles and tools of an organization. */
import { isDeepStrictEqual } from 'node:util'
import { Refusal } from '../../../base/errors.ts'
import type { NetworkSecretRow } from '../../../store/network-secrets.ts'
import type { VolumeRow } from '../../../store/storage-rows.ts'
import { placeOfNetworkSecret } from '../../access/network-secrets.ts'
import type { UsageLimits } from '../../access/usage-limiter.ts'
import { limitsOf, setLimits } from '../limits.ts'
import { switchTool } from '../orgs.ts'
import { createProfile, removeProfile, replaceProfile } from '../profiles.ts'
import { putSecret, removeSecret } from '../secrets.ts'
import { createVolume, removeVolume, updateVolume } from '../volumes.ts'
import type { DeclaredOrg } from './declaration.ts'
import { changedFields, everyRow } from './differences.ts'
import type { OrgWork } from './org-work.ts'

type Section<Name extends keyof DeclaredOrg> = NonNullable<DeclaredOrg[Name]>

/** Replaces the limits of the organization, or of one of its keys. */
export async function applyLimits(
  org: OrgWork,
  amounts: UsageLimits,
  key?: { id: string; name: string },
): Promise<void> {
  const { on, admin } = org
  const owner = { orgId: org.id, ...(key && { keyId: key.id }) }
  const stored = await limitsOf(on, admin, owner)
  if (isDeepStrictEqual(amounts, stored)) return
  const names = new Set([...Object.keys(amounts), ...Object.keys(stored)]) as Set<keyof UsageLimits>
  await setLimits(on, admin, owner, amounts)
  const fields = [...names].filter((name) => amounts[name] !== stored[name])
  org.record('update', 'limits', key?.name ?? org.name, fields)
}

export async function applySecrets(org: OrgWork, declared: Section<'secrets'>): Promise<void> {
  const { on, admin, id: orgId } = org
  for (const [name, settings] of Object.entries(declared)) {
    await org.attempt(['secrets', name], async () => {
      const row = await on.store.networkSecrets.get(orgId, name)
      const fields = row === undefined ? [] : changedInSecret(org, row, settings)
      if (row !== undefined && fields.length === 0) return
      await putSecret(on, admin, { orgId, name }, settings)
      org.record(row === undefined ? 'create' : 'update', 'secret', name, fields)
    })
  }
}

function changedInSecret({ on }: OrgWork, row: NetworkSecretRow, settings: Section<'secrets'>[string]): string[] {
  const stored = {
    value: on.vault.open(placeOfNetworkSecret(row.orgId, row.name), row.value),
    hosts: (JSON.parse(row.hosts) as string[]).toSorted(),
    places: (JSON.parse(row.places) as string[]).toSorted(),
  }
  const { value, hosts, places = ['header'] } = settings
  const wanted = { value, hosts: [...new Set(hosts)].toSorted(), places: [...new Set(places)].toSorted() }
  return Object.keys(changedFields(wanted, stored))
}

export async function pruneSecrets(org: OrgWork, declared: Section<'secrets'>): Promise<void> {
  const { on, admin, id: orgId } = org
  const rows = await everyRow(nameOf, (after, limit) => on.store.networkSecrets.page(orgId, after, limit))
  const others = rows.filter((row) => !Object.hasOwn(declared, row.name))
  await org.prune('secrets', others, async ({ name }) => {
    await removeSecret(on, admin, orgId, name)
    org.record('delete', 'secret', name)
  })
}

/** A quota that is absent is not changed, since the default of a new volume could be less than the present size. */
export async function applyVolumes(org: OrgWork, declared: Section<'volumes'>): Promise<void> {
  const { on, admin, id: orgId } = org
  for (const [slug, { name = '', ...quota }] of Object.entries(declared)) {
    await org.attempt(['volumes', slug], async () => {
      const row = await on.store.volumes.get(orgId, slug)
      if (row === undefined) {
        await createVolume(on, admin, orgId, { slug, name, ...quota })
        org.record('create', 'volume', slug)
        return
      }
      if (row.removingAt !== null)
        throw new Refusal('in_use', { what: `The name ${slug}`, by: 'a volume that is being deleted' })
      const stored = { name: row.name, quota_bytes: row.quotaBytes, quota_files: row.quotaFiles }
      const changed = changedFields({ name, ...quota }, stored)
      if (Object.keys(changed).length === 0) return
      await updateVolume(on, admin, { orgId, slug }, changed)
      org.record('update', 'volume', slug, Object.keys(changed))
    })
  }
}

export async function pruneVolumes(org: OrgWork, declared: Section<'volumes'>): Promise<void> {
  const { on, admin, id: orgId } = org
  const rows = await everyRow(
    ({ slug }: VolumeRow) => slug,
    (after, limit) => on.store.volumes.page(orgId, after, limit),
  )
  const others = rows.filter((row) => row.removingAt === null && !Object.hasOwn(declared, row.slug))
  await org.prune('volumes', others, async ({ slug }) => {
    await removeVolume(on, admin, orgId, slug)
    org.record('delete', 'volume', slug)
  })
}

export async function applyProfiles(org: OrgWork, declared: Section<'profiles'>): Promise<void> {
  for (const [name, settings] of Object.entries(declared)) {
    const path = ['profiles', name]
    const problems = org.on.profiles.problemsOf(name, settings)
    for (const { setting, problem } of problems) org.problem([...path, setting], undefined, problem.replace(/\.$/, ''))
    const isRight = problems.length === 0 && (await org.attempt(path, () => applyProfile(org, name, settings)))
    if (!isRight) org.wrongProfiles.add(name)
  }
}

async function applyProfile(org: OrgWork, name: string, settings: Readonly<Record<string, unknown>>): Promise<void> {
  const { on, admin, id: orgId } = org
  const row = await on.store.storedProfiles.get(orgId, name)
  if (row === undefined) {
    await createProfile(on, admin, orgId, { name, settings })
    org.record('create', 'profile', name)
    return
  }
  const stored = on.profiles.settingsOf(row)
  if (isDeepStrictEqual(settings, stored)) return
  await replaceProfile(on, admin, { orgId, name }, settings)
  const names = new Set([...Object.keys(settings), ...Object.keys(stored)])
  const fields = [...names].filter((field) => !isDeepStrictEqual(settings[field], stored[field]))
  org.record('update', 'profile', name, fields)
}

export async function pruneProfiles(org: OrgWork, declared: Section<'profiles'>): Promise<void> {
  const { on, admin, id: orgId } = org
  const rows = await everyRow(nameOf, (after, limit) => on.store.storedProfiles.page(orgId, after, limit))
  const others = rows.filter((row) => !Object.hasOwn(declared, row.name))
  await org.prune('profiles', others, async ({ name }) => {
    await removeProfile(on, admin, orgId, name)
    org.record('delete', 'profile', name)
  })
}

export async function applyHiddenTools(org: OrgWork, declared: readonly string[]): Promise<void> {
  const { on, admin, id, knownTools: known } = org
  const hidden = await on.store.hiddenTools.list(id)
  for (const [n, tool] of declared.entries()) {
    if (hidden.includes(tool)) continue
    await org.attempt(['hidden_tools', String(n)], async () => {
      await switchTool(on, admin, id, { tool, shown: false, known })
      org.record('create', 'tool', tool)
    })
  }
  for (const tool of hidden.filter((one) => !declared.includes(one))) {
    await org.attempt(['hidden_tools'], async () => {
      // A tool of an earlier version can be hidden as well.
      await switchTool(on, admin, id, { tool, shown: true, known: [...known, tool] })
      org.record('delete', 'tool', tool)
    })
  }
}

const nameOf = ({ name }: { name: string }): string => name
