import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import type { VolumeRow } from '../../store/storage-rows.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import { profileThatMounts, quotaOf, volumeRef } from '../storage/volumes.ts'
import { type Admin, type ChangeContext, checkName, requireInOrg, unknown, withAudit } from './admin.ts'

/** Settings of a volume. An absent one keeps its value, or gets its default. */
export interface VolumeSettings {
  /** Name of its mount point: `/volumes/<slug>`. */
  slug?: string
  /** For display only. */
  name?: string
  /** Maximum size of its content, in bytes. A volume can grow but not shrink. */
  quota_bytes?: number
  /** Maximum number of files, directories and links. */
  quota_files?: number
}

export interface VolumeView {
  id: string
  org_id: string
  slug: string
  name: string
  quota_bytes: number
  quota_files: number
  created_at: string
  /** Time at which its removal was requested; `null` otherwise. */
  removing_at: string | null
}

export interface InspectedVolume extends VolumeView {
  /** Disk space that it occupies, in bytes; then the size and number of its files. */
  size_bytes: number
  used_bytes: number
  used_files: number
}

const mib = 1024 * 1024
const quotas = {
  quota_bytes: { usual: 1024 * mib, minimum: 8 * mib, maximum: 2 ** 44 },
  quota_files: { usual: 100_000, minimum: 16, maximum: 100_000_000 },
} as const

/** Pattern of a slug, which is part of a path in the runs that mount the volume. */
const slugs = /^[a-z0-9][a-z0-9_-]{0,63}$/

/** Creates a volume. @throws Refusal forbidden, not_found, name_taken, limit_reached, invalid_argument. */
export async function createVolume(
  on: ChangeContext,
  admin: Admin,
  orgId: string,
  { slug, name = '', ...quota }: VolumeSettings & { slug: string },
): Promise<VolumeView> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  checkSlug(slug)
  if (name !== '') checkName('name', name)
  const row: VolumeRow = {
    id: newId('volume'),
    orgId,
    slug,
    name,
    quotaBytes: checkQuota('quota_bytes', quota.quota_bytes ?? quotas.quota_bytes.usual),
    quotaFiles: checkQuota('quota_files', quota.quota_files ?? quotas.quota_files.usual),
    createdAt: timestamp(),
    removingAt: null,
  }
  const details = { slug, name, quota_bytes: row.quotaBytes, quota_files: row.quotaFiles }
  await withAudit(on.store, { admin, action: 'volume.create', orgId, target: row.id, details }, async ({ volumes }) => {
    if (!(await volumes.create(row))) throw new Refusal('name_taken', { what: 'A volume', name: slug })
  })
  return toView(row)
}

/** Lists volumes by slug, including those that are being removed. */
export async function listVolumes(
  { store }: ChangeContext,
  admin: Admin,
  orgId: string,
  asked: PageRequest,
): Promise<Page<VolumeView>> {
  await requireInOrg(store, admin, 'member', orgId)
  const { items, nextCursor } = await page(
    asked,
    [''],
    ({ slug }: VolumeRow) => [slug],
    ([slug], limit) => store.volumes.page(orgId, slug, limit),
  )
  return { items: items.map(toView), nextCursor }
}

/** Returns a volume with its disk usage. @throws Refusal not_found, unavailable. */
export async function inspectVolume(
  { store, runner }: ChangeContext,
  admin: Admin,
  orgId: string,
  slug: string,
): Promise<InspectedVolume> {
  await requireInOrg(store, admin, 'member', orgId)
  const row = await existing(store.volumes, orgId, slug)
  const status = await runner?.storage.inspect(volumeRef(row)).catch((error: unknown) => {
    // The image of a volume is created at its first use.
    if (!(error instanceof Refusal && error.code === 'volume_unknown')) throw error
    return undefined
  })
  const { sizeBytes = 0, usedBytes = 0, inodes = 0 } = status ?? {}
  return { ...toView(row), size_bytes: sizeBytes, used_bytes: usedBytes, used_files: inodes }
}

/**
 * Changes the given settings. Active runs keep their mounts; a volume that is in use grows when it is next mounted.
 * @throws Refusal forbidden, not_found, name_taken, in_use (a new slug while profiles mount the old one),
 * limit_reached, invalid_argument (also for a smaller quota).
 */
export async function updateVolume(
  on: ChangeContext,
  admin: Admin,
  { orgId, slug }: { orgId: string; slug: string },
  settings: VolumeSettings,
): Promise<VolumeView> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  const row = await existing(on.store.volumes, orgId, slug)
  const changes = toChanges(row, settings)
  if (changes.slug !== undefined) await requireUnmounted(on, row)
  if (Object.keys(changes).length === 0) return toView(row)
  await withAudit(
    on.store,
    { admin, action: 'volume.update', orgId, target: row.id, details: { ...settings } },
    async ({ volumes }) => {
      const updated = await volumes.update(row.id, changes)
      if (updated === 'taken') throw new Refusal('name_taken', { what: 'A volume', name: changes.slug ?? slug })
      if (!updated) throw unknown('volume', slug)
    },
  )
  const changed = { ...row, ...changes }
  await growNow(on, changed)
  return toView(changed)
}

/**
 * Deletes a volume with all its files: immediately if a runner is connected, otherwise when one connects.
 * @throws Refusal forbidden, not_found, in_use while a profile that valid keys of the organization use mounts it,
 * volume_busy while a run or a file transfer uses it.
 */
export async function removeVolume(on: ChangeContext, admin: Admin, orgId: string, slug: string): Promise<void> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  const row = await existing(on.store.volumes, orgId, slug)
  await requireUnmounted(on, row)
  if (row.removingAt === null) {
    await withAudit(
      on.store,
      { admin, action: 'volume.remove', orgId, target: row.id, details: { slug } },
      async ({ volumes }) => {
        if (!(await volumes.setRemoving(row.id, timestamp()))) throw unknown('volume', slug)
      },
    )
  }
  if (on.runner === undefined) return
  try {
    await on.runner.storage.remove(volumeRef(row))
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    // If the runner is disconnected, the volume is deleted later. No run can mount it from now on.
    if (error.code !== 'volume_busy') return
    // Nothing was erased. The audit line remains, and the caller receives the refusal.
    await on.store.volumes.setRemoving(row.id, null)
    throw new Refusal('volume_busy', { volume: slug })
  }
  await on.store.volumes.remove(row.id)
}

async function existing(volumes: ChangeContext['store']['volumes'], orgId: string, slug: string): Promise<VolumeRow> {
  const row = await volumes.get(orgId, slug)
  if (row === undefined) throw unknown('volume', slug)
  return row
}

/** Checks that no profile mounts the volume. @throws Refusal in_use. */
async function requireUnmounted({ store, profiles }: ChangeContext, row: VolumeRow): Promise<void> {
  const name = await profileThatMounts(store, profiles, row)
  if (name !== undefined) throw new Refusal('in_use', { what: `The volume ${row.slug}`, by: `the profile ${name}` })
}

/** Grows the image now if possible. If it is in use or no runner is connected, it grows when it is next mounted. */
async function growNow({ runner }: ChangeContext, row: VolumeRow): Promise<void> {
  try {
    await runner?.storage.create(volumeRef(row), quotaOf(row))
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
  }
}

function toChanges(row: VolumeRow, { slug, name, quota_bytes: bytes, quota_files: files }: VolumeSettings) {
  if (slug !== undefined) checkSlug(slug)
  if (name !== undefined && name !== '') checkName('name', name)
  if (bytes !== undefined) checkGrowth('quota_bytes', row.quotaBytes, bytes)
  if (files !== undefined && files !== row.quotaFiles) {
    const problem = 'can be set only when a volume is created; it grows with quota_bytes'
    throw new Refusal('invalid_argument', { field: 'quota_files', problem })
  }
  return {
    ...(slug !== undefined && slug !== row.slug && { slug }),
    ...(name !== undefined && name !== row.name && { name }),
    ...(bytes !== undefined && bytes !== row.quotaBytes && { quotaBytes: bytes }),
  }
}

function checkSlug(slug: string): void {
  if (slugs.test(slug)) return
  const problem = 'must be 1 to 64 lower-case letters, digits, "-" and "_", the first a letter or digit'
  throw new Refusal('invalid_argument', { field: 'slug', problem })
}

function checkQuota(field: keyof typeof quotas, value: number): number {
  const { minimum, maximum } = quotas[field]
  if (Number.isInteger(value) && value >= minimum && value <= maximum) return value
  throw new Refusal('invalid_argument', { field, problem: `must be a whole number from ${minimum} to ${maximum}` })
}

function checkGrowth(field: keyof typeof quotas, now: number, wanted: number): void {
  checkQuota(field, wanted)
  if (wanted >= now) return
  throw new Refusal('invalid_argument', { field, problem: `is less than the current ${now}; a volume never shrinks` })
}

const toView = (row: VolumeRow): VolumeView => ({
  id: row.id,
  org_id: row.orgId,
  slug: row.slug,
  name: row.name,
  quota_bytes: row.quotaBytes,
  quota_files: row.quotaFiles,
  created_at: row.createdAt,
  removing_at: row.removingAt,
})
