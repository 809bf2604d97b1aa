import Type from 'typebox'
import { createOrg, getOrg, listOrgs, renameOrg } from '../../core/admin/orgs.ts'
import { toPageRequest } from '../../core/paging.ts'
import { adminOperation, created, type Group, type Operation, ok, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, named, Time } from '../schemas.ts'

export const adminGroup: Group = {
  name: 'Administration',
  description: 'For operators: organizations, keys, profiles, limits.',
}

export const orgPath = '/admin/v1/orgs/{org}'

const OrgBody = named('OrgRequest', Type.Object({ name: Type.String() }, { additionalProperties: false }))
const OrgChange = named(
  'OrgChange',
  Type.Object({ name: Type.Optional(Type.String()) }, { additionalProperties: false }),
)
const Org = named('Org', Type.Object({ id: Type.String(), name: Type.String(), created_at: Time }))

const group = adminGroup

export const orgOperations: readonly Operation[] = [
  adminOperation({
    id: 'listOrgs',
    method: 'GET',
    path: '/admin/v1/orgs',
    group,
    summary: 'List the organizations',
    query: pageParameters,
    answers: { 200: listOf(Org) },
    refusals: [],
    handle: async ({ context, admin, query }) => okPage(await listOrgs(context, admin, toPageRequest(query))),
  }),
  adminOperation({
    id: 'createOrg',
    method: 'POST',
    path: '/admin/v1/orgs',
    group,
    summary: 'Create an organization',
    body: OrgBody,
    answers: { 201: Org },
    refusals: ['name_taken'],
    handle: async ({ context, admin, body }) => created(await createOrg(context, admin, body.name)),
  }),
  adminOperation({
    id: 'getOrg',
    method: 'GET',
    path: orgPath,
    group,
    summary: 'Get an organization',
    answers: { 200: Org },
    refusals: [],
    handle: async ({ context, admin, params }) => ok(await getOrg(context, admin, params.org)),
  }),
  adminOperation({
    id: 'renameOrg',
    method: 'PATCH',
    path: orgPath,
    group,
    summary: 'Rename an organization',
    body: OrgChange,
    answers: { 200: Org },
    refusals: ['name_taken'],
    handle: async ({ context, admin, params, body }) => ok(await renameOrg(context, admin, params.org, body.name)),
  }),
]
