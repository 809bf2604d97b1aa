import Type, { type Static } from 'typebox'
import { networkPolicies } from '../../base/network.ts'
import type { Admin, AdminContext } from '../../core/admin/admin.ts'
import { getUpstreamDetails, readUnlessInstalling } from '../../core/admin/upstream-installations.ts'
import {
  approveUpstream,
  changesOfUpstream,
  createUpstream,
  listUpstreams,
  refreshUpstream,
  removeUpstream,
  testUpstream,
  type UpstreamRef,
  updateUpstream,
} from '../../core/admin/upstreams.ts'
import { toPageRequest } from '../../core/paging.ts'
import { programSharings } from '../../core/upstreams/programs/program.ts'
import { credentialModes, credentialPlaces } from '../../core/upstreams/secrets.ts'
import { type Answer, accepted, adminOperation, created, noContent, type Operation, ok, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, oneOf, orNull } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

export const Credential = Type.Object(
  {
    in: oneOf(credentialPlaces),
    name: Type.String({
      description:
        'Header, query parameter or variable; for body the path in the message, such as params.arguments.api_key.',
    }),
    prefix: Type.Optional(Type.String({ description: 'Precedes each value, such as "Bearer ".' })),
    values: Type.Array(Type.String(), { description: 'Used in turn.' }),
  },
  { additionalProperties: false },
)

export const OAuth = Type.Object(
  {
    client_id: Type.Optional(Type.String({ description: 'If the authorization server registers no clients.' })),
    client_secret: Type.Optional(Type.String()),
    scope: Type.Optional(Type.String({ description: 'By default the scopes that the upstream names.' })),
  },
  { additionalProperties: false },
)

const transports = ['http', 'sse', 'stdio'] as const

const Network = Type.Object(
  {
    policy: oneOf(networkPolicies),
    rules: Type.Optional(Type.Array(Type.String(), { description: 'As in a profile, such as api.example.com.' })),
  },
  { additionalProperties: false },
)

const programFields = {
  command: Type.String({ description: 'Executed without a shell.' }),
  args: Type.Array(Type.String()),
  install: Type.Unsafe<string[] | null>(
    orNull(Type.Array(Type.String()), {
      description: 'Executed once, with the network of package managers; null: what npx and uvx imply.',
    }),
  ),
  no_secret_reason: Type.Unsafe<string | null>(
    orNull(Type.String(), {
      description: 'Why an entry of args or install that looks like a secret is not one; given with them.',
    }),
  ),
  image: Type.Unsafe<string | null>(orNull(Type.String(), { description: 'null: the default image.' })),
  network: Network,
  credential_hosts: Type.Array(Type.String(), {
    description: 'Servers that receive the credential; the program has a placeholder.',
  }),
  sharing: oneOf(programSharings, { description: 'Whether each session has a process, or all keys share one.' }),
  memory_bytes: Type.Integer(),
  disk_bytes: Type.Integer({ description: 'Can only grow.' }),
  cpus: Type.Number(),
  idle_ms: Type.Integer({ description: 'A process without messages is ended after this time.' }),
  lifetime_ms: Type.Integer({ description: 'Everything is ended this long after the start.' }),
}
const Program = Type.Partial(Type.Object(programFields, { additionalProperties: false }))
const ProgramView = Type.Object({ ...programFields, env_names: Type.Array(Type.String()) })

export const upstreamSettings = {
  transport: Type.Optional(
    oneOf(transports, {
      description: 'Streamable HTTP (http, by default), the older HTTP+SSE (sse), or a program in a sandbox (stdio).',
    }),
  ),
  display_name: Type.Optional(Type.String()),
  description: Type.Optional(Type.String()),
  capability_tags: Type.Optional(Type.Array(Type.String())),
  timeout_ms: Type.Optional(Type.Integer({ description: 'Until a response begins; 30000 by default.' })),
  enabled: Type.Optional(Type.Boolean()),
  program: Type.Optional(Program),
  env: Type.Optional(Type.Record(Type.String(), Type.String(), { description: 'Variables of a program.' })),
  headers: Type.Optional(Type.Record(Type.String(), Type.String(), { description: 'Sent with every request.' })),
  credential: Type.Optional(
    Type.Unsafe<Static<typeof Credential> | null>(orNull(Credential, { description: 'null removes it.' })),
  ),
  oauth: Type.Optional(
    Type.Unsafe<Static<typeof OAuth> | null>(
      orNull(OAuth, { description: 'Uses logins instead of a credential. Mostly {}; null ends it.' }),
    ),
  ),
  credential_mode: Type.Optional(
    oneOf(credentialModes, { description: 'Whether keys use the credential of the organization or their own.' }),
  ),
}

const NewUpstreamBody = Type.Object(
  {
    name: Type.String({ description: 'vendor/name' }),
    url: Type.Optional(Type.String({ description: 'Required, except for a program.' })),
    ...upstreamSettings,
  },
  { additionalProperties: false },
)
const UpstreamBody = Type.Object(
  { url: Type.Optional(Type.String()), ...upstreamSettings },
  { additionalProperties: false },
)

const Upstream = Type.Object({
  id: Type.String(),
  name: Type.String(),
  display_name: Type.String(),
  description: Type.String(),
  capability_tags: Type.Array(Type.String()),
  transport: oneOf(transports),
  url: Type.String({ description: 'Empty for a program.' }),
  program: orNull(ProgramView),
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
  oauth: orNull(Type.Object({ client_id: orNull(Type.String()), scope: orNull(Type.String()) })),
  credential_mode: oneOf(credentialModes),
  tools: orNull(Type.Integer(), { description: 'Number of tools; null until they were read.' }),
  listed_at: orNull(Type.String()),
  changed_tools: Type.Array(Type.String(), { description: 'Suspended until they are approved.' }),
  suspicious_tools: Type.Array(Type.String(), { description: 'Their description reads like instructions to a model.' }),
  created_at: Type.String(),
  updated_at: Type.String(),
})

const UpstreamDetails = Type.Object({
  ...Upstream.properties,
  installation: orNull(
    Type.Object({
      state: oneOf(['installing', 'failed'] as const),
      started_at: Type.String(),
      last_line: Type.String({ description: 'What the installer wrote last.' }),
      problem: orNull(Type.String(), { description: 'null while it is in progress.' }),
    }),
    { description: 'Of a program; null if none is in progress and the latest one did not fail.' },
  ),
})

const Listing = Type.Object({
  tools: Type.Array(Type.Object({ name: Type.String() })),
  prompts: Type.Array(Type.Object({ name: Type.String() })),
  resources: Type.Array(Type.Object({ name: Type.String(), uri: Type.String() })),
  server: Type.String(),
  stderr: Type.Optional(Type.String({ description: 'What a program wrote, without its secrets.' })),
  skipped_lines: Type.Optional(
    Type.Integer({ description: 'Lines of its standard output that were no messages, since the start of the server.' }),
  ),
})

const ToolChange = Type.Object({
  name: Type.String(),
  approved: orNull(Type.Object({}), { description: 'null for a new tool.' }),
  current: orNull(Type.Object({}), { description: 'null for a tool that was removed.' }),
})

const collection = `${orgPath}/upstreams` as const
export const upstreamPath = `${collection}/{vendor}/{name}` as const
const path = upstreamPath

export const toRef = ({ org, vendor, name }: { org: string; vendor: string; name: string }) => ({
  orgId: org,
  name: `${vendor}/${name}`,
})

const inspection = [
  ...(['upstream_failed', 'upstream_timeout', 'upstream_misconfigured'] as const),
  ...(['upstream_login_required', 'upstream_login_failed'] as const),
]

const unlessInstalled =
  'While its program is installed, the answer is 202 at once; this continues in the background, and GET of the upstream shows how far it is'

async function readWith(
  read: (on: AdminContext, admin: Admin, ref: UpstreamRef) => Promise<object>,
  context: AdminContext,
  admin: Admin,
  ref: UpstreamRef,
): Promise<Answer> {
  const outcome = await readUnlessInstalling(context, admin, ref, () => read(context, admin, ref))
  return 'result' in outcome ? ok(outcome.result) : accepted(outcome.installing)
}

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
    answers: { 200: UpstreamDetails },
    refusals: [],
    handle: async ({ context, admin, params }) => ok(await getUpstreamDetails(context, admin, toRef(params))),
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
    summary: `Connect to an upstream MCP server and return what it offers, without storing it. ${unlessInstalled}`,
    answers: { 200: Listing, 202: UpstreamDetails },
    refusals: inspection,
    handle: ({ context, admin, params }) => readWith(testUpstream, context, admin, toRef(params)),
  }),
  adminOperation({
    id: 'refreshUpstream',
    method: 'POST',
    path: `${path}/refresh`,
    group,
    summary: `Read the tools of an upstream MCP server; changed ones are suspended until they are approved. ${unlessInstalled}`,
    answers: { 200: Upstream, 202: UpstreamDetails },
    refusals: inspection,
    handle: ({ context, admin, params }) => readWith(refreshUpstream, context, admin, toRef(params)),
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
