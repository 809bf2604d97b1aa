/** The commands of the volumes of orgs. What they hold is made, grown and erased by the server that runs, or will run. */
import type { Config } from '../config.ts'
import { readSetting } from '../config-sources.ts'
import { operator } from '../core/admin/admin.ts'
import { createVolume, listVolumes, removeVolume, updateVolume } from '../core/admin/volumes.ts'
import { settings } from '../settings.ts'
import { everyItem, orgNamed, withAdministered } from './admin-context.ts'
import { exitCodes, type Io } from './process-io.ts'
import { printTable } from './table.ts'

export interface VolumeFlags {
  org: string
  name?: string
  /** A size such as `10GiB`. */
  quota?: string
  files?: string
}

/** A volume holds as much as a thread can at most. */
const quotaOf = ({ quota, files }: VolumeFlags) => ({
  ...(quota !== undefined && { quota_bytes: readSetting(settings.limit_thread, quota, 'The flag --quota') as number }),
  ...(files !== undefined && {
    quota_files: readSetting(settings.limit_thread_files, files, 'The flag --files') as number,
  }),
})

export function volumesList(config: Config, org: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const { id } = await orgNamed(on.store, org)
    const volumes = await everyItem((cursor) => listVolumes(on, operator, id, { cursor }))
    const rows = volumes.map((one) => [
      one.slug,
      one.id,
      `${one.quota_bytes}`,
      `${one.quota_files}`,
      one.name || '-',
      one.created_at,
      one.removing_at === null ? 'kept' : 'being deleted',
    ])
    printTable([['SLUG', 'ID', 'BYTES', 'FILES', 'NAME', 'CREATED', 'STATE'], ...rows], io)
    return exitCodes.ok
  })
}

/** Makes a volume and prints its id. */
export function volumesCreate(config: Config, slug: string, flags: VolumeFlags, io: Io): Promise<number> {
  const settings = { slug, ...(flags.name !== undefined && { name: flags.name }), ...quotaOf(flags) }
  return withAdministered(config, io, async (on) => {
    const { id } = await createVolume(on, operator, (await orgNamed(on.store, flags.org)).id, settings)
    io.stdout.write(`${id}\n`)
    return exitCodes.ok
  })
}

/** Gives a volume another slug. */
export const volumesRename = (config: Config, slug: string, to: string, org: string, io: Io): Promise<number> =>
  update(config, slug, org, { slug: to }, io)

/** Lets a volume hold more. */
export const volumesGrow = (config: Config, slug: string, quota: string, org: string, io: Io): Promise<number> =>
  update(config, slug, org, quotaOf({ org, quota }), io)

function update(config: Config, slug: string, org: string, changes: object, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    await updateVolume(on, operator, { orgId: (await orgNamed(on.store, org)).id, slug }, changes)
    return exitCodes.ok
  })
}

/** Deletes a volume: it is erased as soon as a server runs and no run has it. */
export function volumesDelete(config: Config, slug: string, org: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    await removeVolume(on, operator, (await orgNamed(on.store, org)).id, slug)
    io.stderr.write(`No run gets ${slug} any more; the server erases it as soon as no run has it.\n`)
    return exitCodes.ok
  })
}
