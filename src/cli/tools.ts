/** The operator's switches of tools. A server that runs knows of one within a second. */
import type { Config } from '../config.ts'
import { operator } from '../core/admin/admin.ts'
import { hiddenToolsOf, switchTool } from '../core/admin/orgs.ts'
import { productInventory } from '../tools/catalog.ts'
import { orgNamed, withAdministered } from './admin-context.ts'
import { exitCodes, type Io } from './process-io.ts'

/** Names of all tools there are. */
export const toolNames: readonly string[] = productInventory.tools.map(({ name }) => name)

/** Prints one line for each tool. */
export function toolsList(config: Config, orgName: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const hidden = await hiddenToolsOf(on, operator, (await orgNamed(on.store, orgName)).id)
    for (const name of toolNames) io.stdout.write(`${name}  ${hidden.includes(name) ? 'hidden' : 'shown'}\n`)
    return exitCodes.ok
  })
}

/** Hides a tool from all keys of an org, or shows it again. */
export function toolsSwitch(
  config: Config,
  what: 'hide' | 'show',
  tool: string,
  orgName: string,
  io: Io,
): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const { id } = await orgNamed(on.store, orgName)
    await switchTool(on, operator, id, { tool, shown: what === 'show', known: toolNames })
    return exitCodes.ok
  })
}
