import Type, { type Static } from 'typebox'
import { type Role, roles } from '../../core/admin/admin.ts'
import { createToken, listTokens, revokeToken } from '../../core/admin/tokens.ts'
import { toPageRequest } from '../../core/paging.ts'
import { adminOperation, created, noContent, type Operation, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, named, orNull, Time } from '../schemas.ts'
import { adminGroup as group } from './orgs.ts'

const patterns = Type.Array(Type.String(), {
  description: 'Names of tools, in which * stands for any characters.',
})

const RuntimeTools = Type.Object(
  { included: Type.Optional(patterns), excluded: Type.Optional(patterns) },
  { additionalProperties: false, description: 'What is included and not excluded may be called.' },
)

const TokenBody = named(
  'TokenRequest',
  Type.Object(
    {
      name: Type.String(),
      role: Type.Unsafe<Role>({ type: 'string', enum: [...roles] }),
      org_id: Type.Optional(
        Type.Unsafe<string | null>({
          anyOf: [{ type: 'string' }, { type: 'null' }],
          description: 'The organization that it administers; null for the whole instance.',
        }),
      ),
      expires_at: Type.Optional(
        Type.Unsafe<string | null>({
          anyOf: [{ type: 'string', description: 'ISO 8601; null for no expiry.' }, { type: 'null' }],
        }),
      ),
      runtime_tools: Type.Optional(
        Type.Unsafe<Static<typeof RuntimeTools> | null>({ anyOf: [RuntimeTools, { type: 'null' }] }),
      ),
    },
    { additionalProperties: false },
  ),
)

const Token = named(
  'Token',
  Type.Object({
    id: Type.String(),
    name: Type.String(),
    role: Type.String(),
    org_id: orNull(Type.String()),
    prefix: Type.String(),
    created_at: Time,
    expires_at: orNull(Time),
    revoked_at: orNull(Time),
    runtime_tools: orNull(RuntimeTools),
  }),
)
const TokenWithSecret = named(
  'TokenWithSecret',
  Type.Object({ ...Token.properties, secret: Type.String({ description: 'Shown only once.' }) }),
)

export const tokenOperations: readonly Operation[] = [
  adminOperation({
    id: 'listTokens',
    method: 'GET',
    path: '/admin/v1/tokens',
    group,
    summary: 'List admin tokens, without their secrets',
    query: pageParameters,
    answers: { 200: listOf(Token) },
    refusals: [],
    handle: async ({ context, admin, query }) => okPage(await listTokens(context, admin, toPageRequest(query))),
  }),
  adminOperation({
    id: 'createToken',
    method: 'POST',
    path: '/admin/v1/tokens',
    group,
    summary: 'Create an admin token',
    body: TokenBody,
    answers: { 201: TokenWithSecret },
    refusals: [],
    handle: async ({ context, admin, body }) => created(await createToken(context, admin, body)),
  }),
  adminOperation({
    id: 'revokeToken',
    method: 'DELETE',
    path: '/admin/v1/tokens/{token}',
    group,
    summary: 'Revoke an admin token',
    answers: { 204: null },
    refusals: [],
    handle: async ({ context, admin, params }) => {
      await revokeToken(context, admin, params.token)
      return noContent
    },
  }),
]
