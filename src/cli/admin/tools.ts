/** `glovebox tools`: which tools an organization may use. A running server applies a change within a second. */

import type { Command } from 'commander'
import { adminToolset } from '../../base/profile.ts'
import { operator } from '../../core/admin/admin.ts'
import { hiddenToolsOf, switchTool } from '../../core/admin/orgs.ts'
import { productInventory } from '../../tools/catalog.ts'
import { type Cli, withExamples } from '../command.ts'
import { printItems } from '../output.ts'
import { type AdminSession, adminCommand, withAdmin, withOrg } from './context.ts'

/** The names of all tools. */
export const toolNames: readonly string[] = productInventory.tools
  .filter(({ toolset }) => toolset !== adminToolset)
  .map(({ name }) => name)

export function register(program: Command, cli: Cli): void {
  const tools = program.command('tools').description('Hide tools from an organization.')
  withOrg(adminCommand(tools, 'list', 'List all tools, with their state.')).action(withAdmin(cli, list))
  withExamples(
    withOrg(adminCommand(tools, 'hide <tool>', 'Hide a tool from all keys of an organization and refuse its calls.')),
    'glovebox tools hide files_upload --org acme',
  ).action(withAdmin(cli, change(false)))
  withOrg(adminCommand(tools, 'show <tool>', 'Show a hidden tool again.')).action(withAdmin(cli, change(true)))
}

async function list(session: AdminSession, options: { org: string; json?: boolean }) {
  const hidden = await hiddenToolsOf(session, operator, (await session.orgNamed(options.org)).id)
  const tools = toolNames.map((name) => ({ name, state: hidden.includes(name) ? 'hidden' : 'shown' }))
  printItems(tools, { TOOL: ({ name }) => name, STATE: ({ state }) => state }, options, session.io)
  return undefined
}

const change =
  (shown: boolean) =>
  async (session: AdminSession, tool: string, { org }: { org: string }) => {
    const { id } = await session.orgNamed(org)
    await switchTool(session, operator, id, { tool, shown, known: toolNames })
    session.printResult({ name: tool, state: shown ? 'shown' : 'hidden' }, '')
    return undefined
  }
