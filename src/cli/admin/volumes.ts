/** `glovebox volumes`. The server creates, grows and deletes the filesystems, as soon as it runs. */
import type { Command } from 'commander'
import { readSetting } from '../../config-sources.ts'
import { operator } from '../../core/admin/admin.ts'
import { createVolume, listVolumes, removeVolume, updateVolume, type VolumeView } from '../../core/admin/volumes.ts'
import { settings } from '../../settings.ts'
import { type Cli, withExamples } from '../command.ts'
import { type Columns, printItems } from '../output.ts'
import { type AdminSession, adminCommand, everyItem, withAdmin, withOrg } from './context.ts'

interface VolumeOptions {
  org: string
  name?: string
  /** A size such as `10GiB`. */
  quota?: string
  files?: string
}

export function register(program: Command, cli: Cli): void {
  const volumes = program.command('volumes').description('Manage the volumes of an organization.')
  const add = (usage: string, description: string) => withOrg(adminCommand(volumes, usage, description))
  withExamples(
    add('create <slug>', 'Create a volume and print its id. Profiles mount it as <slug>:ro or <slug>:rw.')
      .option('--name <text>', 'display name')
      .option('--quota <size>', 'size, such as 10GiB')
      .option('--files <n>', 'number of files, directories and links'),
    'glovebox volumes create data --org acme --quota 10GiB',
  ).action(withAdmin(cli, create))
  add('list', 'List the volumes of an organization.').action(withAdmin(cli, list))
  add('rename <slug> <new-slug>', 'Change the slug of a volume that no profile mounts.').action(withAdmin(cli, rename))
  withExamples(
    add('grow <slug> <size>', 'Increase the size of a volume. Volumes cannot shrink.'),
    'glovebox volumes grow data 20GiB --org acme',
  ).action(withAdmin(cli, grow))
  add('delete <slug>', 'Delete a volume that no profile mounts, with all its files.').action(withAdmin(cli, remove))
}

/** A volume has the limits of the largest possible thread. */
const quotaOf = ({ quota, files }: Pick<VolumeOptions, 'quota' | 'files'>) => ({
  ...(quota !== undefined && { quota_bytes: readSetting(settings.limit_thread, quota, 'The flag --quota') as number }),
  ...(files !== undefined && {
    quota_files: readSetting(settings.limit_thread_files, files, 'The flag --files') as number,
  }),
})

const columns: Columns<VolumeView> = {
  SLUG: ({ slug }) => slug,
  ID: ({ id }) => id,
  BYTES: (volume) => `${volume.quota_bytes}`,
  FILES: (volume) => `${volume.quota_files}`,
  NAME: ({ name }) => name || '-',
  CREATED: (volume) => volume.created_at,
  STATE: (volume) => (volume.removing_at === null ? 'active' : 'being deleted'),
}

async function list(session: AdminSession, options: { org: string; json?: boolean }) {
  const { id } = await session.orgNamed(options.org)
  const volumes = await everyItem((cursor) => listVolumes(session, operator, id, { cursor }))
  printItems(volumes, columns, options, session.io)
  return undefined
}

async function create(session: AdminSession, slug: string, options: VolumeOptions) {
  const { id: orgId } = await session.orgNamed(options.org)
  const content = { slug, ...(options.name !== undefined && { name: options.name }), ...quotaOf(options) }
  const volume = await createVolume(session, operator, orgId, content)
  session.printResult(volume, volume.id)
  return undefined
}

const rename = (session: AdminSession, slug: string, newSlug: string, { org }: VolumeOptions) =>
  update(session, slug, org, { slug: newSlug })

const grow = (session: AdminSession, slug: string, quota: string, { org }: VolumeOptions) =>
  update(session, slug, org, quotaOf({ quota }))

async function update(session: AdminSession, slug: string, org: string, changes: object) {
  const volume = await updateVolume(session, operator, { orgId: (await session.orgNamed(org)).id, slug }, changes)
  session.printResult(volume, '')
  return undefined
}

async function remove(session: AdminSession, slug: string, { org }: VolumeOptions) {
  await removeVolume(session, operator, (await session.orgNamed(org)).id, slug)
  session.notify(`New runs no longer mount ${slug}. The server deletes its files when no run uses them.`)
  session.printResult({ slug, state: 'being deleted' }, '')
  return undefined
}
