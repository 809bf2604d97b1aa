import Type from 'typebox'
import type { Administered } from '../../core/admin/admin.ts'
import { createProfile, getProfile, listProfiles, removeProfile, replaceProfile } from '../../core/admin/profiles.ts'
import { pageWords } from '../query.ts'
import { administer, pageOf, toList } from './answer.ts'

const Settings = Type.Unsafe<Record<string, unknown>>({
  type: 'object',
  description: 'Settings of a profile as in the configuration file; what is left out is as in `default`.',
})

export const NewProfileBody = Type.Object(
  { name: Type.String(), settings: Type.Optional(Settings) },
  { additionalProperties: false },
)

export const ProfileBody = Type.Object({ settings: Settings }, { additionalProperties: false })

export const profilesOf = (on: Administered) => ({
  GET: administer(on, { query: pageWords }, async ({ admin, path, query }) => ({
    status: 200,
    body: toList(await listProfiles(on, admin, path.org!, pageOf(query))),
  })),
  POST: administer(on, { body: NewProfileBody }, async ({ admin, path, body: { name, settings = {} } }) => ({
    status: 201,
    body: await createProfile(on, admin, path.org!, { name, settings }),
  })),
})

export const profile = (on: Administered) => ({
  GET: administer(on, {}, async ({ admin, path }) => ({
    status: 200,
    body: await getProfile(on, admin, path.org!, path.profile!),
  })),
  PUT: administer(on, { body: ProfileBody }, async ({ admin, path, body }) => ({
    status: 200,
    body: await replaceProfile(on, admin, { orgId: path.org!, name: path.profile! }, body.settings),
  })),
  DELETE: administer(on, {}, async ({ admin, path }) => {
    await removeProfile(on, admin, path.org!, path.profile!)
    return { status: 204 }
  }),
})
