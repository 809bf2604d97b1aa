/** `glovebox profiles`: the profiles that an organization defines in addition to those of the configuration. */
import { readFileSync } from 'node:fs'
import type { Command } from 'commander'
import { StartRefused } from '../../base/errors.ts'
import { asMap, readFileText } from '../../config-sources.ts'
import { operator } from '../../core/admin/admin.ts'
import { createProfile, getProfile, listProfiles, removeProfile, replaceProfile } from '../../core/admin/profiles.ts'
import { type Cli, withExamples } from '../command.ts'
import { type Columns, printItems, printJson } from '../output.ts'
import { type AdminSession, adminCommand, everyItem, withAdmin, withOrg } from './context.ts'

interface OrgOption {
  org: string
}

export function register(program: Command, cli: Cli): void {
  const profiles = program.command('profiles').description('Manage the profiles of an organization.')
  const add = (usage: string, description: string) => withOrg(adminCommand(profiles, usage, description))
  add('list', 'List the profiles that keys of an organization can use.').action(withAdmin(cli, list))
  add('show <name>', 'Print the settings of a profile as JSON.').action(withAdmin(cli, show))
  withExamples(
    add('set <name> <file>', 'Create or replace a profile with the settings in a YAML file.'),
    'glovebox profiles set small small.yaml --org acme',
  ).action((name: string, file: string, options: OrgOption, command: Command) => {
    // The file is read before the command becomes the user of the API server, which may not be able to read it.
    const settings = asMap(readFileText(file, readText(file)), `The file ${file}`)
    return withAdmin(cli, (session) => set(session, name, settings, options))(command)
  })
  add('remove <name>', 'Remove a profile that no key uses.').action(withAdmin(cli, remove))
}

interface ListedProfile {
  name: string
  /** `configuration`, or the organization. */
  source: string
  updated_at: string | null
}

const columns: Columns<ListedProfile> = {
  NAME: ({ name }) => name,
  SOURCE: ({ source }) => source,
  CHANGED: (profile) => profile.updated_at ?? '-',
}

async function list(session: AdminSession, options: OrgOption & { json?: boolean }) {
  const org = await session.orgNamed(options.org)
  const own = await everyItem((cursor) => listProfiles(session, operator, org.id, { cursor }))
  const found: ListedProfile[] = [
    ...session.profiles.configured.map(({ name }) => ({ name, source: 'configuration', updated_at: null })),
    ...own.map((profile) => ({ name: profile.name, source: org.name, updated_at: profile.updated_at })),
  ]
  printItems(found, columns, options, session.io)
  return undefined
}

async function set(session: AdminSession, name: string, settings: Record<string, unknown>, { org }: OrgOption) {
  const { id: orgId } = await session.orgNamed(org)
  const existing = await session.store.storedProfiles.get(orgId, name)
  const profile = existing
    ? await replaceProfile(session, operator, { orgId, name }, settings)
    : await createProfile(session, operator, orgId, { name, settings })
  session.printResult(profile, '')
  return undefined
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new StartRefused(`Cannot read ${file}: ${(error as Error).message}.`, 'Check the path of the file.')
  }
}

async function show(session: AdminSession, name: string, { org }: OrgOption) {
  printJson(await getProfile(session, operator, (await session.orgNamed(org)).id, name), session.io)
  return undefined
}

async function remove(session: AdminSession, name: string, { org }: OrgOption) {
  await removeProfile(session, operator, (await session.orgNamed(org)).id, name)
  session.printResult({ removed: name }, '')
  return undefined
}
