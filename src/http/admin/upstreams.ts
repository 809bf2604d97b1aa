import Type, { type Static } from 'typebox'
import {
  approveUpstream,
  changesOfUpstream,
  createUpstream,
  getUpstream,
  listUpstreams,
  refreshUpstream,
  removeUpstream,
  testUpstream,
  updateUpstream,
} from '../../core/admin/upstreams.ts'
import { toPageRequest } from '../../core/paging.ts'
import { credentialPlaces } from '../../core/upstreams/secrets.ts'
import { adminOperation, created, noContent, type Operation, ok, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, oneOf, orNull } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

const Credential = Type.Object(
  {
    in: oneOf(credentialPlaces),
    name: Type.String({
      description: 'Header or query parameter; for body the path in the message, such as params.arguments.api_key.',
    }),
    prefix: Type.Optional(Type.String({ description: 'Precedes each value, such as "Bearer ".' })),
    values: Type.Array(Type.String(), { description: 'Used in turn.' }),
  },
  { additionalProperties: false },
)

const settings = {
  display_name: Type.Optional(Type.String()),
  description: Type.Optional(Type.String()),
  capability_tags: Type.Optional(Type.Array(Type.String())),
  timeout_ms: Type.Optional(Type.Integer({ description: 'Until a response begins; 30000 by default.' })),
  enabled: Type.Optional(Type.Boolean()),
  headers: Type.Optional(Type.Record(Type.String(), Type.String(), { description: 'Sent with every request.' })),
  credential: Type.Optional(
    Type.Unsafe<Static<typeof Credential> | null>(orNull(Credential, { description: 'null removes it.' })),
  ),
}

const NewUpstreamBody = Type.Object(
  { name: Type.String({ description: 'vendor/name' }), url: Type.String(), ...settings },
  { additionalProperties: false },
)
const UpstreamBody = Type.Object({ url: Type.Optional(Type.String()), ...settings }, { additionalProperties: false })

const Upstream = Type.Object({
  id: Type.String(),
  name: Type.String(),
  display_name: Type.String(),
  description: Type.String(),
  capability_tags: Type.Array(Type.String()),
  transport: oneOf(['http']),
  url: Type.String(),
  timeout_ms: Type.Integer(),
  enabled: Type.Boolean(),
  header_names: Type.Array(Type.String()),
  credential: orNull(
    Type.Object({
      in: oneOf(credentialPlaces),
      name: Type.String(),
      prefix: Type.String(),
      hints: Type.Array(Type.String(), { description: 'The end of each value.' }),
    }),
  ),
  tools: orNull(Type.Integer(), { description: 'Number of tools; null until they were read.' }),
  listed_at: orNull(Type.String()),
  changed_tools: Type.Array(Type.String(), { description: 'Suspended until they are approved.' }),
  suspicious_tools: Type.Array(Type.String(), { description: 'Their description reads like instructions to a model.' }),
  created_at: Type.String(),
  updated_at: Type.String(),
})

const Listing = Type.Object({
  tools: Type.Array(Type.Object({ name: Type.String() })),
  prompts: Type.Array(Type.Object({ name: Type.String() })),
  resources: Type.Array(Type.Object({ name: Type.String(), uri: Type.String() })),
  server: Type.String(),
})

const ToolChange = Type.Object({
  name: Type.String(),
  approved: orNull(Type.Object({}), { description: 'null for a new tool.' }),
  current: orNull(Type.Object({}), { description: 'null for a tool that was removed.' }),
})

const collection = `${orgPath}/upstreams` as const
const path = `${collection}/{vendor}/{name}` as const

const toRef = ({ org, vendor, name }: { org: string; vendor: string; name: string }) => ({
  orgId: org,
  name: `${vendor}/${name}`,
})

const inspection = ['upstream_failed', 'upstream_timeout', 'upstream_misconfigured'] as const

export const upstreamOperations: readonly Operation[] = [
  adminOperation({
    id: 'listUpstreams',
    method: 'GET',
    path: collection,
    group,
    summary: 'List the upstream MCP servers of an organization',
    query: pageParameters,
    answers: { 200: listOf(Upstream) },
    refusals: [],
    handle: async ({ context, admin, params, query }) =>
      okPage(await listUpstreams(context, admin, params.org, toPageRequest(query))),
  }),
  adminOperation({
    id: 'createUpstream',
    method: 'POST',
    path: collection,
    group,
    summary: 'Register an upstream MCP server',
    body: NewUpstreamBody,
    answers: { 201: Upstream },
    refusals: ['name_taken', 'destination_refused'],
    handle: async ({ context, admin, params, body: { name, ...rest } }) =>
      created(await createUpstream(context, admin, { orgId: params.org, name }, rest)),
  }),
  adminOperation({
    id: 'getUpstream',
    method: 'GET',
    path,
    group,
    summary: 'Get an upstream MCP server, without its secrets',
    answers: { 200: Upstream },
    refusals: [],
    handle: async ({ context, admin, params }) => ok(await getUpstream(context, admin, toRef(params))),
  }),
  adminOperation({
    id: 'updateUpstream',
    method: 'PATCH',
    path,
    group,
    summary: 'Change an upstream MCP server; calls in progress are not affected',
    body: UpstreamBody,
    answers: { 200: Upstream },
    refusals: ['destination_refused'],
    handle: async ({ context, admin, params, body }) => ok(await updateUpstream(context, admin, toRef(params), body)),
  }),
  adminOperation({
    id: 'removeUpstream',
    method: 'DELETE',
    path,
    group,
    summary: 'Remove an upstream MCP server with its credentials',
    answers: { 204: null },
    refusals: [],
    handle: async ({ context, admin, params }) => {
      await removeUpstream(context, admin, toRef(params))
      return noContent
    },
  }),
  adminOperation({
    id: 'testUpstream',
    method: 'POST',
    path: `${path}/test`,
    group,
    summary: 'Connect to an upstream MCP server and return what it offers, without storing it',
    answers: { 200: Listing },
    refusals: inspection,
    handle: async ({ context, admin, params }) => ok(await testUpstream(context, admin, toRef(params))),
  }),
  adminOperation({
    id: 'refreshUpstream',
    method: 'POST',
    path: `${path}/refresh`,
    group,
    summary: 'Read the tools of an upstream MCP server; changed ones are suspended until they are approved',
    answers: { 200: Upstream },
    refusals: inspection,
    handle: async ({ context, admin, params }) => ok(await refreshUpstream(context, admin, toRef(params))),
  }),
  adminOperation({
    id: 'listUpstreamChanges',
    method: 'GET',
    path: `${path}/changes`,
    group,
    summary: 'List the tools that have changed since they were approved, with both versions',
    answers: { 200: Type.Object({ data: Type.Array(ToolChange) }) },
    refusals: [],
    handle: async ({ context, admin, params }) => ok({ data: await changesOfUpstream(context, admin, toRef(params)) }),
  }),
  adminOperation({
    id: 'approveUpstream',
    method: 'POST',
    path: `${path}/approve`,
    group,
    summary: 'Approve the tools of an upstream MCP server as they were last read',
    answers: { 200: Upstream },
    refusals: [],
    handle: async ({ context, admin, params }) => ok(await approveUpstream(context, admin, toRef(params))),
  }),
]
