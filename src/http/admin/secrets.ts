import Type from 'typebox'
import { secretPlaces } from '../../base/network-secrets.ts'
import { getSecret, listSecrets, putSecret, removeSecret } from '../../core/admin/secrets.ts'
import { toPageRequest } from '../../core/paging.ts'
import { adminOperation, noContent, type Operation, ok, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, named, oneOf } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

export const hosts = Type.Array(Type.String(), {
  description:
    'Servers that receive it: name, *.suffix, each with :port or port 443; http:// before it allows plain HTTP.',
})
export const places = Type.Array(oneOf(secretPlaces), {
  description: 'Where in a request its placeholder is replaced. Without this, in headers.',
})

const SecretBody = named(
  'SecretRequest',
  Type.Object(
    {
      value: Type.Optional(Type.String({ description: 'It is not returned again. Absent: the stored one is kept.' })),
      hosts,
      places: Type.Optional(places),
    },
    { additionalProperties: false },
  ),
)

const Secret = named(
  'NetworkSecret',
  Type.Object({
    name: Type.String({ description: 'Also the name of the variable in which programs find the placeholder.' }),
    placeholder: Type.String(),
    hosts,
    places,
    hint: Type.String({ description: 'The end of the value.' }),
    created_at: Type.String(),
    updated_at: Type.String(),
  }),
)

const secretPath = `${orgPath}/secrets/{secret}` as const

export const secretOperations: readonly Operation[] = [
  adminOperation({
    id: 'listSecrets',
    method: 'GET',
    path: `${orgPath}/secrets`,
    group,
    summary: 'List the secrets of an organization for the network of runs and sandboxes, without their values',
    query: pageParameters,
    answers: { 200: listOf(Secret) },
    refusals: [],
    handle: async ({ context, admin, params, query }) =>
      okPage(await listSecrets(context, admin, params.org, toPageRequest(query))),
  }),
  adminOperation({
    id: 'getSecret',
    method: 'GET',
    path: secretPath,
    group,
    summary: 'Get a secret, without its value',
    answers: { 200: Secret },
    refusals: [],
    handle: async ({ context, admin, params }) => ok(await getSecret(context, admin, params.org, params.secret)),
  }),
  adminOperation({
    id: 'putSecret',
    method: 'PUT',
    path: secretPath,
    group,
    summary: 'Create a secret, or replace its value and its servers',
    body: SecretBody,
    answers: { 200: Secret },
    refusals: [],
    handle: async ({ context, admin, params, body }) =>
      ok(await putSecret(context, admin, { orgId: params.org, name: params.secret }, body)),
  }),
  adminOperation({
    id: 'removeSecret',
    method: 'DELETE',
    path: secretPath,
    group,
    summary: 'Delete a secret',
    answers: { 204: null },
    refusals: [],
    handle: async ({ context, admin, params }) => {
      await removeSecret(context, admin, params.org, params.secret)
      return noContent
    },
  }),
]
