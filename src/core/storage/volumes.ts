import { Refusal } from '../../base/errors.ts'
import type { MountedVolume } from '../../base/profile.ts'
import type { RunVolume } from '../../base/run.ts'
import type { Runner, StorageRef } from '../../runner/protocol/messages.ts'
import type { VolumeRow } from '../../store/storage-rows.ts'
import type { Store } from '../../store/store.ts'
import type { Profiles } from '../access/profiles.ts'
import type { Caller } from '../caller.ts'
import type { PackageLayers } from '../packages/layers.ts'
import { type Page, type PageRequest, page } from '../paging.ts'

/** A volume as keys see it whose profile mounts it. */
export interface CallerVolume {
  slug: string
  name: string
  mode: MountedVolume['mode']
  /** Its path in runs. */
  path: string
  /** Disk space that it occupies, and its quota, in bytes. */
  size_bytes: number
  quota_bytes: number
  quota_files: number
  created_at: string
}

export const quotaOf = ({ quotaBytes, quotaFiles }: VolumeRow) => ({ bytes: quotaBytes, inodes: quotaFiles })

export const volumeRef = ({ orgId, id }: VolumeRow): StorageRef => ({ area: 'volumes', org: orgId, name: id })

/** Returns the name of a profile that mounts the volume and that a valid key of its organization is bound to. */
export async function profileThatMounts(
  { keys }: Pick<Store, 'keys'>,
  profiles: Profiles,
  { orgId, slug }: VolumeRow,
): Promise<string | undefined> {
  const live = (await keys.list(orgId)).filter(({ revokedAt }) => revokedAt === null)
  for (const name of new Set(live.map((key) => key.profile))) {
    const profile = await profiles.get(orgId, name)
    if (profile?.volumes.some((volume) => volume.slug === slug)) return name
  }
  return undefined
}

/** The capability that each operation requires. */
export const volumeNeeds = { list: 'volumes.read' } as const

/** Provides the volumes that profiles mount. */
export class Volumes {
  readonly #store: Store
  readonly #runner: Runner
  readonly #packages: Pick<PackageLayers, 'of'> | undefined

  /** @param packages of profiles; absent: none. */
  constructor(store: Store, runner: Runner, packages?: Pick<PackageLayers, 'of'>) {
    this.#store = store
    this.#runner = runner
    this.#packages = packages
  }

  /**
   * Returns the volumes of a run of the caller, with that of the packages of its profile.
   * @param image of the run.
   * @throws Refusal volume_missing if one does not exist, and those of `PackageLayers.of`.
   */
  async ofRun(caller: Caller, image = caller.profile.image): Promise<RunVolume[]> {
    const packages = await this.#packages?.of(caller, image)
    const mounted = await this.mountedBy(caller)
    return packages ? [...mounted, packages] : mounted
  }

  /** Returns the volumes that the caller's profile mounts. @throws Refusal volume_missing if one does not exist. */
  async mountedBy({ orgId, profile: { volumes } }: Caller): Promise<RunVolume[]> {
    if (volumes.length === 0) return []
    const rows = await this.#rowsOf(orgId, volumes)
    return volumes.map(({ slug, mode }) => {
      const row = rows.get(slug)
      if (row === undefined) throw new Refusal('volume_missing', { volume: slug })
      return { slug, name: row.id, readOnly: mode === 'ro', quota: quotaOf(row) }
    })
  }

  /** Lists the existing volumes of the caller's profile, by slug. @throws Refusal invalid_argument, unavailable. */
  async list({ orgId, profile: { volumes } }: Caller, asked: PageRequest): Promise<Page<CallerVolume>> {
    const known = await this.#rowsOf(orgId, volumes)
    const sorted = [...known.values()].sort((a, b) => (a.slug < b.slug ? -1 : 1))
    const { items, nextCursor } = await page(
      asked,
      [''],
      ({ slug }: VolumeRow) => [slug],
      async ([after], limit) => sorted.filter(({ slug }) => slug > after).slice(0, limit),
    )
    const ids = items.map(({ id }) => id)
    const sizes = ids.length === 0 ? [] : await this.#runner.storage.sizes('volumes', orgId, ids)
    const modes = new Map(volumes.map(({ slug, mode }) => [slug, mode]))
    const views = items.map((row, n) => toView(row, modes.get(row.slug) ?? 'ro', sizes[n] ?? 0))
    return { items: views, nextCursor }
  }

  /**
   * Returns a reference to the storage of a volume. Creates its image at first use.
   * @throws Refusal volume_unknown (also if the profile does not mount it), volume_read_only, unavailable.
   */
  async reach({ orgId, profile }: Caller, slug: string, how: 'read' | 'write'): Promise<StorageRef> {
    const mounted = profile.volumes.find((volume) => volume.slug === slug)
    const row = mounted && (await this.#rowsOf(orgId, [mounted])).get(slug)
    if (!mounted || !row) throw new Refusal('volume_unknown', { volume: slug.slice(0, 64) })
    if (how === 'write' && mounted.mode === 'ro') throw new Refusal('volume_read_only', { volume: slug })
    const where = volumeRef(row)
    const [size] = await this.#runner.storage.sizes('volumes', orgId, [row.id])
    if (size === null) await this.#runner.storage.create(where, quotaOf(row))
    return where
  }

  /**
   * Erases the volumes whose removal was requested. A volume that a run uses is retried by the next call. A volume that a
   * profile mounts is restored: the command that removed it was started with other profiles than this server.
   * @param kept called for each restored volume.
   * @throws Refusal unavailable while no runner is connected.
   */
  async settle(profiles: Profiles, kept: (row: VolumeRow, profile: string) => void): Promise<void> {
    for (const row of await this.#store.volumes.removing()) {
      const profile = await profileThatMounts(this.#store, profiles, row)
      if (profile !== undefined) {
        if (await this.#store.volumes.setRemoving(row.id, null)) kept(row, profile)
        continue
      }
      try {
        await this.#runner.storage.remove(volumeRef(row))
        await this.#store.volumes.remove(row.id)
      } catch (error) {
        if (!(error instanceof Refusal && error.code === 'volume_busy')) throw error
      }
    }
  }

  async #rowsOf(orgId: string, volumes: readonly MountedVolume[]): Promise<Map<string, VolumeRow>> {
    const slugs = volumes.map(({ slug }) => slug)
    return new Map((await this.#store.volumes.ofSlugs(orgId, slugs)).map((row) => [row.slug, row]))
  }
}

const toView = (row: VolumeRow, mode: MountedVolume['mode'], sizeBytes: number): CallerVolume => ({
  slug: row.slug,
  name: row.name,
  mode,
  path: `/volumes/${row.slug}`,
  size_bytes: sizeBytes,
  quota_bytes: row.quotaBytes,
  quota_files: row.quotaFiles,
  created_at: row.createdAt,
})
