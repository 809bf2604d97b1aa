import Type, { type Static } from 'typebox'
import { secretForms } from '../../core/access/keys.ts'
import { createKey, getKey, listKeys, revokeKey, rotateKey, updateKey } from '../../core/admin/keys.ts'
import { toPageRequest } from '../../core/paging.ts'
import { adminOperation, created, noContent, type Operation, ok, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, named, oneOf, orNull, Time } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

const nullable = (schema: object) => Type.Unsafe<never>({ anyOf: [schema, { type: 'null' }] })

const Policy = Type.Object(
  {
    calls_per_minute: Type.Optional(Type.Integer({ description: 'Requests to upstreams; unlimited by default.' })),
    read_only: Type.Optional(Type.Boolean({ description: 'Permits only tools that are annotated as read-only.' })),
    arguments: Type.Optional(
      Type.Record(Type.String(), Type.Unsafe<object>({ type: 'object' }), {
        description: 'JSON Schemas that arguments must match too, by vendor/name#tool.',
      }),
    ),
  },
  { additionalProperties: false, description: 'Limits at upstream MCP servers; null for no further limits.' },
)

export const keySettings = {
  name: Type.Optional(Type.String({ description: 'A name for people.' })),
  profile: Type.Optional(Type.String({ description: 'Name of a profile; a new key gets `default`.' })),
  expires_at: Type.Optional(
    Type.Unsafe<string | null>(nullable({ type: 'string', description: 'ISO 8601; null for no expiry.' })),
  ),
  env_vars: Type.Optional(
    Type.Unsafe<Record<string, string>>({
      type: 'object',
      additionalProperties: { type: 'string' },
      description:
        'Environment variables of its runs. They override those of the profile; those of a call override them. Stored encrypted.',
    }),
  ),
  tools: Type.Optional(
    Type.Unsafe<string[] | null>(
      nullable({ type: 'array', items: { type: 'string' }, description: 'null for all tools of its profile.' }),
    ),
  ),
  upstream_policy: Type.Optional(Type.Unsafe<Static<typeof Policy> | null>(orNull(Policy))),
  namespaces: Type.Optional(
    Type.Unsafe<string[] | null>(
      nullable({
        type: 'array',
        items: { type: 'string' },
        description: 'Namespaces of sandboxes that it may use; null for all of the organization.',
      }),
    ),
  ),
}

const KeyBody = named('KeyRequest', Type.Object(keySettings, { additionalProperties: false }))

const NewKeyBody = named(
  'NewKeyRequest',
  Type.Object(
    {
      ...keySettings,
      secret_form: Type.Optional(
        oneOf(secretForms, {
          description: 'Form of its secret: sk-… by default, or msb_…, which the clients of microsandbox know.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
)

/** A week is enough to bring a new secret to every client. */
const overlapMaxSeconds = 7 * 24 * 3600

const RotateBody = named(
  'RotateKeyRequest',
  Type.Object(
    {
      overlap_seconds: Type.Optional(
        Type.Integer({
          minimum: 0,
          maximum: overlapMaxSeconds,
          description: 'How long the previous secret remains valid; 0 by default.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
)

const Key = named(
  'Key',
  Type.Object({
    id: Type.String(),
    org_id: Type.String(),
    name: Type.String(),
    prefix: orNull(Type.String({ description: 'The first characters of its secret.' })),
    profile: Type.String(),
    env_names: Type.Array(Type.String()),
    tools: orNull(Type.Array(Type.String())),
    upstream_policy: orNull(Policy),
    namespaces: orNull(Type.Array(Type.String())),
    created_at: Time,
    expires_at: orNull(Time),
    revoked_at: orNull(Time),
  }),
)
const KeyWithSecret = named(
  'KeyWithSecret',
  Type.Object({ ...Key.properties, secret: Type.String({ description: 'Shown only once.' }) }),
)

const keyPath = `${orgPath}/keys/{key}` as const

export const keyOperations: readonly Operation[] = [
  adminOperation({
    id: 'listKeys',
    method: 'GET',
    path: `${orgPath}/keys`,
    group,
    summary: 'List keys, without their secrets',
    query: pageParameters,
    answers: { 200: listOf(Key) },
    refusals: [],
    handle: async ({ context, admin, params, query }) =>
      okPage(await listKeys(context, admin, params.org, toPageRequest(query))),
  }),
  adminOperation({
    id: 'createKey',
    method: 'POST',
    path: `${orgPath}/keys`,
    group,
    summary: 'Create a key',
    body: NewKeyBody,
    answers: { 201: KeyWithSecret },
    refusals: [],
    handle: async ({ server, context, admin, params, body }) =>
      created(await createKey(context, admin, params.org, body, server.catalog.toolNames)),
  }),
  adminOperation({
    id: 'getKey',
    method: 'GET',
    path: keyPath,
    group,
    summary: 'Get a key',
    answers: { 200: Key },
    refusals: [],
    handle: async ({ context, admin, params }) => ok(await getKey(context, admin, params.org, params.key)),
  }),
  adminOperation({
    id: 'updateKey',
    method: 'PATCH',
    path: keyPath,
    group,
    summary: 'Update the given fields of a key',
    body: KeyBody,
    answers: { 200: Key },
    refusals: ['key_revoked'],
    handle: async ({ server, context, admin, params, body }) => {
      const key = { orgId: params.org, id: params.key }
      return ok(await updateKey(context, admin, key, body, server.catalog.toolNames))
    },
  }),
  adminOperation({
    id: 'revokeKey',
    method: 'DELETE',
    path: keyPath,
    group,
    summary: 'Revoke a key permanently',
    answers: { 204: null },
    refusals: [],
    handle: async ({ context, admin, params }) => {
      await revokeKey(context, admin, params.org, params.key)
      return noContent
    },
  }),
  adminOperation({
    id: 'rotateKey',
    method: 'POST',
    path: `${keyPath}/rotate`,
    group,
    summary: 'Replace the secret of a key',
    body: RotateBody,
    answers: { 200: KeyWithSecret },
    refusals: ['key_revoked'],
    handle: async ({ context, admin, params, body }) =>
      ok(await rotateKey(context, admin, { orgId: params.org, id: params.key }, body.overlap_seconds ?? 0)),
  }),
]
