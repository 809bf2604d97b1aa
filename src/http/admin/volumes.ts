import Type from 'typebox'
import type { Administered } from '../../core/admin/admin.ts'
import { createVolume, inspectVolume, listVolumes, removeVolume, updateVolume } from '../../core/admin/volumes.ts'
import { pageWords } from '../query.ts'
import { administer, pageOf, toList } from './answer.ts'

const slug = Type.String({ description: 'Where runs find it: /volumes/<slug>.' })
const rest = {
  name: Type.Optional(Type.String({ description: 'For people alone.' })),
  quota_bytes: Type.Optional(Type.Integer({ description: 'What it may hold; it grows, and never shrinks.' })),
  quota_files: Type.Optional(Type.Integer({ description: 'Files, directories and links from when it is made.' })),
}

export const NewVolumeBody = Type.Object({ slug, ...rest }, { additionalProperties: false })
export const VolumeBody = Type.Object({ slug: Type.Optional(slug), ...rest }, { additionalProperties: false })

const shown = {
  id: Type.String(),
  org_id: Type.String(),
  slug: Type.String(),
  name: Type.String(),
  quota_bytes: Type.Integer(),
  quota_files: Type.Integer(),
  created_at: Type.String(),
  removing_at: Type.Union([Type.String(), Type.Null()]),
}
export const Volume = Type.Object(shown)
export const InspectedVolume = Type.Object({
  ...shown,
  size_bytes: Type.Integer(),
  used_bytes: Type.Integer(),
  used_files: Type.Integer(),
})

export const volumesOf = (on: Administered) => ({
  GET: administer(on, { query: pageWords }, async ({ admin, path, query }) => ({
    status: 200,
    body: toList(await listVolumes(on, admin, path.org!, pageOf(query))),
  })),
  POST: administer(on, { body: NewVolumeBody }, async ({ admin, path, body }) => ({
    status: 201,
    body: await createVolume(on, admin, path.org!, body),
  })),
})

/** One, by its slug. */
export const volume = (on: Administered) => ({
  GET: administer(on, {}, async ({ admin, path }) => ({
    status: 200,
    body: await inspectVolume(on, admin, path.org!, path.volume!),
  })),
  PATCH: administer(on, { body: VolumeBody }, async ({ admin, path, body }) => ({
    status: 200,
    body: await updateVolume(on, admin, { orgId: path.org!, slug: path.volume! }, body),
  })),
  DELETE: administer(on, {}, async ({ admin, path }) => {
    await removeVolume(on, admin, path.org!, path.volume!)
    return { status: 204 }
  }),
})
