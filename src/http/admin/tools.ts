import Type from 'typebox'
import type { Administered } from '../../core/admin/admin.ts'
import { hiddenToolsOf, switchTool } from '../../core/admin/orgs.ts'
import { administer } from './answer.ts'

export const ToolBody = Type.Object({ shown: Type.Boolean() }, { additionalProperties: false })

/** @param known names of all tools there are. */
export const toolsOf = (on: Administered, known: readonly string[]) => ({
  GET: administer(on, {}, async ({ admin, path }) => {
    const hidden = await hiddenToolsOf(on, admin, path.org!)
    return { status: 200, body: { data: known.map((name) => ({ name, shown: !hidden.includes(name) })) } }
  }),
})

export const tool = (on: Administered, known: readonly string[]) => ({
  PUT: administer(on, { body: ToolBody }, async ({ admin, path, body: { shown } }) => {
    await switchTool(on, admin, path.org!, { tool: path.tool!, shown, known })
    return { status: 200, body: { name: path.tool, shown } }
  }),
})
