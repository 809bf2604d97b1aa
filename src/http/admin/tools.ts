import Type from 'typebox'
import { hiddenToolsOf, switchTool } from '../../core/admin/orgs.ts'
import { adminOperation, type Operation, ok } from '../operation.ts'
import { named } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

const ToolBody = named('ToolSwitchRequest', Type.Object({ shown: Type.Boolean() }, { additionalProperties: false }))

const properties = { name: Type.String(), shown: Type.Boolean() }
const ToolSwitch = named('ToolSwitch', Type.Object(properties))
const ToolSwitches = named('ToolSwitches', Type.Object({ data: Type.Array(Type.Object(properties)) }))

export const toolOperations: readonly Operation[] = [
  adminOperation({
    id: 'listTools',
    method: 'GET',
    path: `${orgPath}/tools`,
    group,
    summary: 'List all tools and whether the organization shows them',
    answers: { 200: ToolSwitches },
    refusals: [],
    handle: async ({ server, context, admin, params }) => {
      const hidden = await hiddenToolsOf(context, admin, params.org)
      return ok({ data: server.catalog.toolNames.map((name) => ({ name, shown: !hidden.includes(name) })) })
    },
  }),
  adminOperation({
    id: 'switchTool',
    method: 'PUT',
    path: `${orgPath}/tools/{tool}`,
    group,
    summary: 'Show a tool to all keys of an organization, or hide it',
    body: ToolBody,
    answers: { 200: ToolSwitch },
    refusals: [],
    handle: async ({ server, context, admin, params, body: { shown } }) => {
      const { org, tool } = params
      await switchTool(context, admin, org, { tool, shown, known: server.catalog.toolNames })
      return ok({ name: tool, shown })
    },
  }),
]
