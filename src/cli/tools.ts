/** The operator's switches of tools. A server that runs knows of one within a second. */
import type { Config } from '../config.ts'
import type { OrgRow, Store } from '../store/store.ts'
import { productInventory } from '../tools/catalog.ts'
import { exitCodes, type Io } from './io.ts'
import { withStore } from './keys.ts'

const names = productInventory.tools.map(({ name }) => name)

/** Prints one line for each tool. */
export function toolsList(config: Config, orgName: string, io: Io): Promise<number> {
  return withStore(config, io, async (store) => {
    const org = await orgNamed(store, orgName)
    if (!org) return explain(`There is no org ${orgName}.`, io)
    const hidden = await store.hiddenTools.list(org.id)
    for (const name of names) io.stdout.write(`${name}  ${hidden.includes(name) ? 'hidden' : 'shown'}\n`)
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
  return withStore(config, io, async (store) => {
    const org = await orgNamed(store, orgName)
    if (!org) return explain(`There is no org ${orgName}.`, io)
    if (!names.includes(tool)) return explain(`There is no tool ${tool}; there are ${names.join(', ')}.`, io)
    await store.hiddenTools[what](org.id, tool)
    return exitCodes.ok
  })
}

const orgNamed = async (store: Store, name: string): Promise<OrgRow | undefined> =>
  (await store.orgs.list()).find((org) => org.name === name)

function explain(problem: string, io: Io): number {
  io.stderr.write(`glovebox tools: ${problem}\n`)
  return exitCodes.usage
}
