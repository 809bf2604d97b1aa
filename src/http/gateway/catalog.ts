import type { FastifyRequest } from 'fastify'
import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { OfferedUpstream } from '../../core/upstreams/upstreams.ts'
import { type UsageGroup, usageGroups } from '../../core/upstreams/usage.ts'
import { clientConfig, codexToml, isMcpClient, mcpClientNames } from '../../gateway/client-config.ts'
import { secretOf } from '../authenticate.ts'
import { type Addressing, baseUrlOf } from '../base-url.ts'
import { keyOperation, type Operation, ok } from '../operation.ts'
import { orNull } from '../schemas.ts'
import { gatewayGroup as group } from './group.ts'

/** Pages of this list have numbers, and odd values get the default instead of an error, as its clients expect. */
const pageSizeDefault = 20
const pageSizeMax = 100

const Server = Type.Object({
  name: Type.String({ description: 'vendor/name' }),
  display_name: Type.String(),
  description: Type.String(),
  vendor: Type.String(),
  capability_tags: Type.Array(Type.String()),
  enabled: Type.Boolean(),
})
const Servers = Type.Object({
  code: Type.Integer({ description: '0' }),
  data: Type.Object({
    data: Type.Array(Server),
    total: Type.Integer(),
    page: Type.Integer(),
    page_size: Type.Integer(),
  }),
})
const Described = { name: Type.String(), description: Type.Optional(Type.String()) }
const Tools = Type.Object({
  code: Type.Integer({ description: '0' }),
  data: Type.Object({
    tools: Type.Array(Type.Object({ ...Described, inputSchema: orNull(Type.Unsafe<object>({ type: 'object' })) })),
    prompts: Type.Array(Type.Object(Described)),
    resources: Type.Array(Type.Object({ ...Described, uri: Type.String() })),
  }),
  message: Type.String(),
})
const Usage = Type.Object({
  code: Type.Integer({ description: '0' }),
  data: Type.Object({
    total: Type.Integer({ description: 'Calls in the period.' }),
    items: Type.Array(
      Type.Object({
        server: Type.Optional(Type.String()),
        tool: Type.Optional(Type.String({ description: 'Empty for methods other than tools/call.' })),
        key_id: Type.Optional(Type.String()),
        day: Type.Optional(Type.String()),
        calls: Type.Integer(),
        failures: Type.Integer(),
        latency_ms: Type.Integer({ description: 'Sum over all calls.' }),
        bytes: Type.Integer({ description: 'Of request and response bodies.' }),
      }),
    ),
  }),
  message: Type.String(),
})

const toServer = ({ name, displayName, description, tags }: OfferedUpstream) => ({
  ...{ name, display_name: displayName, description, vendor: name.split('/')[0] ?? '' },
  ...{ capability_tags: tags, enabled: true },
})

const toTools = ({ name, listing }: OfferedUpstream) => {
  if (listing === null) {
    throw new Refusal('upstream_failed', { upstream: name, problem: 'its tools have not been read yet' })
  }
  const { tools, prompts, resources } = listing
  const data = {
    tools: tools.map(({ name, description, inputSchema }) => ({ name, ...described(description), inputSchema })),
    ...{ prompts, resources },
  }
  return { code: 0, data, message: 'ok' }
}

const described = (description: string | undefined) => (description === undefined ? {} : { description })

const numberOr = (text: string | undefined, fallback: number, max: number): number => {
  const number = Number(text ?? fallback)
  return Number.isInteger(number) && number >= 1 && number <= max ? number : fallback
}

/** The prefixes that clients of other gateways use. */
const prefixes = ['/v1/mcp', '/api/mcp'] as const

const servers = (prefix: (typeof prefixes)[number], id: string): Operation =>
  keyOperation({
    id,
    method: 'GET',
    path: `${prefix}/servers`,
    capability: 'upstreams.read',
    group,
    summary: 'List the upstream MCP servers of this key',
    query: {
      page: 'Number of the page, from 1.',
      pageSize: `Items per page, 1 to ${pageSizeMax}; ${pageSizeDefault} by default.`,
      q: 'Words in the names, descriptions, tags and schemas of a server and its tools. The best matches are first.',
    },
    answers: { 200: Servers },
    refusals: ['invalid_argument'],
    handle: async ({ core, caller, query }) => {
      const { q = '' } = query
      const found =
        q.trim() === ''
          ? await core.upstreams.list(caller)
          : [...new Set((await core.upstreams.search(caller, q, 'all')).map(({ upstream }) => upstream))]
      const page = numberOr(query.page, 1, Number.MAX_SAFE_INTEGER)
      const pageSize = numberOr(query.pageSize, pageSizeDefault, pageSizeMax)
      const data = found.slice((page - 1) * pageSize, page * pageSize).map(toServer)
      return ok({ code: 0, data: { data, total: found.length, page, page_size: pageSize } })
    },
  })

const toolsByName = (prefix: (typeof prefixes)[number], id: string): Operation =>
  keyOperation({
    id,
    method: 'GET',
    path: `${prefix}/tools`,
    capability: 'upstreams.read',
    group,
    summary: 'List the tools, prompts and resources of an upstream MCP server',
    query: { name: 'vendor/name' },
    answers: { 200: Tools },
    refusals: ['invalid_argument', 'invalid_request', 'upstream_unknown', 'upstream_failed'],
    handle: async ({ core, caller, query: { name } }) => {
      // Checked first, so that every key without the capability gets the same answer.
      await core.requireCapability(caller, 'upstreams.read')
      if (!name) throw new Refusal('invalid_request', { problem: 'the parameter name is missing' })
      return ok(toTools(await core.upstreams.get(caller, name)))
    },
  })

/** In a path, a name is two parts, or one part with an encoded slash. */
const tools = (prefix: (typeof prefixes)[number], path: '{vendor}/{name}' | '{vendor}', id: string): Operation =>
  keyOperation({
    id,
    method: 'GET',
    path: `${prefix}/${path}/tools` as string,
    capability: 'upstreams.read',
    group,
    summary: 'List the tools, prompts and resources of an upstream MCP server',
    answers: { 200: Tools },
    refusals: ['upstream_unknown', 'upstream_failed'],
    handle: async ({ core, caller, params }) => ok(toTools(await core.upstreams.get(caller, nameIn(params)))),
  })

const nameIn = (params: object): string => {
  const { vendor = '', name } = params as { vendor?: string; name?: string }
  return name === undefined ? vendor : `${vendor}/${name}`
}

const configuration = (path: '{vendor}/{name}' | '{vendor}', id: string): Operation =>
  keyOperation({
    id,
    method: 'GET',
    path: `/v1/mcp/${path}/config` as string,
    capability: 'upstreams.read',
    group,
    summary: 'Get the configuration of an MCP client for an upstream MCP server, with the key of this request',
    query: {
      client: `One of ${mcpClientNames.join(', ')}; claude by default.`,
      format: 'toml returns the text of the file, for codex.',
    },
    answers: { 200: Type.Object({}, { description: 'The content of the file, as the client reads it.' }) },
    refusals: ['invalid_argument', 'upstream_unknown'],
    handle: async ({ core, caller, server, request, reply, params, query }) => {
      const { name } = await core.upstreams.get(caller, nameIn(params))
      const { client = 'claude', format = 'json' } = query
      if (!isMcpClient(client)) {
        throw new Refusal('invalid_argument', {
          field: 'client',
          problem: `must be one of ${mcpClientNames.join(', ')}`,
        })
      }
      if (format !== 'json' && !(format === 'toml' && client === 'codex')) {
        throw new Refusal('invalid_argument', { field: 'format', problem: 'must be json, or toml for codex' })
      }
      const endpoint = endpointOf(request, server, name)
      if (format === 'json') return ok(clientConfig(client, endpoint).body)
      await reply.code(200).header('content-type', 'application/toml').send(codexToml(endpoint))
      return undefined
    },
  })

function endpointOf(request: FastifyRequest, addressing: Addressing, upstream: string) {
  const [, name = upstream] = upstream.split('/')
  const url = `${baseUrlOf(request, addressing)}/${upstream}/sse`
  return { name, url, key: secretOf(request.headers) ?? null }
}

const usage: Operation = keyOperation({
  id: 'getUpstreamUsage',
  method: 'GET',
  path: '/v1/mcp/usage',
  capability: 'upstreams.read',
  group,
  summary: 'Add up the calls of upstream MCP servers by this organization',
  query: {
    start: 'First day, such as 2027-01-31; 30 days before the end by default.',
    end: 'Last day; today by default.',
    group_by: `One of ${usageGroups.join(', ')}; server by default.`,
  },
  answers: { 200: Usage },
  refusals: ['invalid_argument'],
  handle: async ({ core, caller, query: { start, end, group_by: groupBy = 'server' } }) => {
    const known = usageGroups.find((group) => group === groupBy)
    await core.requireCapability(caller, 'upstreams.read')
    if (known === undefined) {
      throw new Refusal('invalid_argument', { field: 'group_by', problem: `must be one of ${usageGroups.join(', ')}` })
    }
    const items = await core.upstreams.usage(caller, { start, end, groupBy: known satisfies UsageGroup })
    return ok({ code: 0, data: { total: items.reduce((sum, { calls }) => sum + calls, 0), items }, message: 'ok' })
  },
})

/** The catalog of upstream MCP servers, for clients of gateways. */
export const catalogOperations: readonly Operation[] = [
  servers('/v1/mcp', 'listServers'),
  servers('/api/mcp', 'listServersByApiPath'),
  toolsByName('/v1/mcp', 'listServerTools'),
  toolsByName('/api/mcp', 'listServerToolsByApiPath'),
  tools('/v1/mcp', '{vendor}/{name}', 'listToolsOfServer'),
  tools('/api/mcp', '{vendor}/{name}', 'listToolsOfServerByApiPath'),
  tools('/api/mcp', '{vendor}', 'listToolsOfEncodedServer'),
  configuration('{vendor}/{name}', 'getClientConfig'),
  configuration('{vendor}', 'getClientConfigOfEncodedServer'),
  usage,
]
