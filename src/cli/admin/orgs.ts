/** `glovebox orgs`: organizations. */
import type { Command } from 'commander'
import { operator } from '../../core/admin/admin.ts'
import { createOrg, listOrgs, renameOrg } from '../../core/admin/orgs.ts'
import { type Cli, withExamples } from '../command.ts'
import { printItems } from '../output.ts'
import { type AdminSession, adminCommand, everyItem, withAdmin } from './context.ts'

export function register(program: Command, cli: Cli): void {
  const orgs = program.command('orgs').description('Manage organizations.')
  adminCommand(orgs, 'list', 'List all organizations.').action(withAdmin(cli, list))
  withExamples(
    adminCommand(orgs, 'create <name>', 'Create an organization and print its id.'),
    'glovebox orgs create acme',
  ).action(withAdmin(cli, create))
  withExamples(
    adminCommand(orgs, 'rename <name> <new-name>', 'Rename an organization.'),
    'glovebox orgs rename acme "Acme Ltd"',
  ).action(withAdmin(cli, rename))
}

async function list(session: AdminSession, options: { json?: boolean }) {
  const orgs = await everyItem((cursor) => listOrgs(session, operator, { cursor }))
  const columns = {
    ID: ({ id }: (typeof orgs)[number]) => id,
    NAME: ({ name }: (typeof orgs)[number]) => name,
    CREATED: (org: (typeof orgs)[number]) => org.created_at,
  }
  printItems(orgs, columns, options, session.io)
  return undefined
}

async function create(session: AdminSession, name: string) {
  const org = await createOrg(session, operator, name)
  session.printResult(org, org.id)
  return undefined
}

async function rename(session: AdminSession, name: string, newName: string) {
  session.printResult(await renameOrg(session, operator, (await session.orgNamed(name)).id, newName), '')
  return undefined
}
