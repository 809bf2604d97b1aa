import Type from 'typebox'
import { createProfile, getProfile, listProfiles, removeProfile, replaceProfile } from '../../core/admin/profiles.ts'
import { toPageRequest } from '../../core/paging.ts'
import { adminOperation, created, noContent, type Operation, ok, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, named, Time } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

const Settings = Type.Unsafe<Record<string, unknown>>({
  type: 'object',
  description: 'Profile settings as in the configuration file. Omitted settings are taken from `default`.',
})

const NewProfileBody = named(
  'NewProfileRequest',
  Type.Object({ name: Type.String(), settings: Type.Optional(Settings) }, { additionalProperties: false }),
)

const ProfileBody = named('ProfileRequest', Type.Object({ settings: Settings }, { additionalProperties: false }))

const Profile = named(
  'Profile',
  Type.Object({
    name: Type.String(),
    settings: Type.Unsafe<object>({ type: 'object' }),
    env_names: Type.Array(Type.String()),
    created_at: Time,
    updated_at: Time,
  }),
)

const profilePath = `${orgPath}/profiles/{profile}` as const

export const profileOperations: readonly Operation[] = [
  adminOperation({
    id: 'listProfiles',
    method: 'GET',
    path: `${orgPath}/profiles`,
    group,
    summary: 'List the profiles of an organization, without those of the configuration file',
    query: pageParameters,
    answers: { 200: listOf(Profile) },
    refusals: [],
    handle: async ({ context, admin, params, query }) =>
      okPage(await listProfiles(context, admin, params.org, toPageRequest(query))),
  }),
  adminOperation({
    id: 'createProfile',
    method: 'POST',
    path: `${orgPath}/profiles`,
    group,
    summary: 'Create a profile',
    body: NewProfileBody,
    answers: { 201: Profile },
    refusals: ['name_taken'],
    handle: async ({ context, admin, params, body: { name, settings = {} } }) =>
      created(await createProfile(context, admin, params.org, { name, settings })),
  }),
  adminOperation({
    id: 'getProfile',
    method: 'GET',
    path: profilePath,
    group,
    summary: 'Get a profile',
    answers: { 200: Profile },
    refusals: [],
    handle: async ({ context, admin, params }) => ok(await getProfile(context, admin, params.org, params.profile)),
  }),
  adminOperation({
    id: 'replaceProfile',
    method: 'PUT',
    path: profilePath,
    group,
    summary: 'Replace all settings of a profile',
    body: ProfileBody,
    answers: { 200: Profile },
    refusals: [],
    handle: async ({ context, admin, params, body }) =>
      ok(await replaceProfile(context, admin, { orgId: params.org, name: params.profile }, body.settings)),
  }),
  adminOperation({
    id: 'removeProfile',
    method: 'DELETE',
    path: profilePath,
    group,
    summary: 'Delete a profile that no key uses',
    answers: { 204: null },
    refusals: ['in_use'],
    handle: async ({ context, admin, params }) => {
      await removeProfile(context, admin, params.org, params.profile)
      return noContent
    },
  }),
]
