import Type from 'typebox'
import { compile } from '../../base/schema-check.ts'
import type { Gateway } from '../../gateway/gateway.ts'
import type { CallableTool } from '../catalog.ts'
import type { ToolListing } from '../tool.ts'
import { findTool, listingOf, type NamedTool, toTool } from './upstream-tools.ts'

const foundDefault = 5
const foundMax = 20

const SearchInput = Type.Object(
  {
    query: Type.String({ minLength: 1, maxLength: 500, description: 'What the tool should do, in a few words.' }),
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: foundMax,
        description: `Maximum number of tools, ${foundDefault} by default.`,
      }),
    ),
  },
  { additionalProperties: false },
)
const CallInput = Type.Object(
  {
    name: Type.String({ description: 'Name of a tool, as tool_search returned it.' }),
    arguments: Type.Optional(
      Type.Unsafe<object>({ type: 'object', description: 'Arguments that match the inputSchema of the tool.' }),
    ),
  },
  { additionalProperties: false },
)
const checkSearch = compile(SearchInput, { lenient: true })
const checkCall = compile(CallInput, { lenient: true })

/** Two tools in place of the tools of all upstreams, whose descriptions would fill the context of a model. */
export const discoveryListings = (count: number): ToolListing[] => [
  {
    name: 'tool_search',
    title: 'Search tools',
    description: `Find tools for a task among ${count} tools of other servers. Returns their names, descriptions and input schemas. Call them with tool_call.`,
    inputSchema: SearchInput,
    annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  },
  {
    name: 'tool_call',
    title: 'Call a tool',
    description: 'Call a tool that tool_search returned, with arguments that match its input schema.',
    inputSchema: CallInput,
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  },
]

/** Returns the two tools. */
export function discoveryTools(gateway: Gateway, tools: readonly NamedTool[]): CallableTool[] {
  return [
    {
      name: 'tool_search',
      call: async (caller, given) => {
        const { query, limit = foundDefault } = checkSearch(given, () => {})
        const named = new Map(tools.map((tool) => [`${tool.upstream} ${tool.tool.name}`, tool]))
        const hits = await gateway.search(caller, query)
        const found = hits.flatMap(({ upstream, tool }) => named.get(`${upstream.name} ${tool}`) ?? []).slice(0, limit)
        const shown = found
          .map(listingOf)
          .map(({ name, description, inputSchema }) => ({ name, description, inputSchema }))
        const text = shown.length === 0 ? 'No tool matches. Use other words.' : JSON.stringify(shown)
        return { content: [{ type: 'text', text }], isError: false }
      },
    },
    {
      name: 'tool_call',
      call: async (caller, given, context) => {
        const { name, arguments: inner = {} } = checkCall(given, () => {})
        return toTool(gateway, findTool(tools, name)).call(caller, inner, context)
      },
    },
  ]
}
