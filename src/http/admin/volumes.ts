import Type from 'typebox'
import { createVolume, inspectVolume, listVolumes, removeVolume, updateVolume } from '../../core/admin/volumes.ts'
import { toPageRequest } from '../../core/paging.ts'
import { adminOperation, created, noContent, type Operation, ok, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, named } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

const slug = Type.String({ description: 'Runs find the volume at /volumes/<slug>.' })
export const volumeSettings = {
  name: Type.Optional(Type.String({ description: 'A name for people.' })),
  quota_bytes: Type.Optional(Type.Integer({ description: 'Maximum size of its files. It can be increased only.' })),
  quota_files: Type.Optional(
    Type.Integer({ description: 'Maximum number of files, directories and links. Fixed when the volume is created.' }),
  ),
}

const NewVolumeBody = named(
  'NewVolumeRequest',
  Type.Object({ slug, ...volumeSettings }, { additionalProperties: false }),
)
const VolumeBody = named(
  'VolumeRequest',
  Type.Object({ slug: Type.Optional(slug), ...volumeSettings }, { additionalProperties: false }),
)

const properties = {
  id: Type.String(),
  org_id: Type.String(),
  slug: Type.String(),
  name: Type.String(),
  quota_bytes: Type.Integer(),
  quota_files: Type.Integer(),
  created_at: Type.String(),
  removing_at: Type.Union([Type.String(), Type.Null()]),
}
const Volume = named('OrgVolume', Type.Object(properties))
const InspectedVolume = named(
  'InspectedOrgVolume',
  Type.Object({
    ...properties,
    size_bytes: Type.Integer(),
    used_bytes: Type.Integer(),
    used_files: Type.Integer(),
  }),
)

const volumePath = `${orgPath}/volumes/{volume}` as const

export const adminVolumeOperations: readonly Operation[] = [
  adminOperation({
    id: 'listOrgVolumes',
    method: 'GET',
    path: `${orgPath}/volumes`,
    group,
    summary: 'List the volumes of an organization',
    query: pageParameters,
    answers: { 200: listOf(Volume) },
    refusals: [],
    handle: async ({ context, admin, params, query }) =>
      okPage(await listVolumes(context, admin, params.org, toPageRequest(query))),
  }),
  adminOperation({
    id: 'createVolume',
    method: 'POST',
    path: `${orgPath}/volumes`,
    group,
    summary: 'Create a volume',
    body: NewVolumeBody,
    answers: { 201: Volume },
    refusals: ['name_taken'],
    handle: async ({ context, admin, params, body }) => created(await createVolume(context, admin, params.org, body)),
  }),
  adminOperation({
    id: 'getVolume',
    method: 'GET',
    path: volumePath,
    group,
    summary: 'Get a volume',
    answers: { 200: InspectedVolume },
    refusals: [],
    handle: async ({ context, admin, params }) => ok(await inspectVolume(context, admin, params.org, params.volume)),
  }),
  adminOperation({
    id: 'updateVolume',
    method: 'PATCH',
    path: volumePath,
    group,
    summary: 'Rename a volume or increase its quota',
    body: VolumeBody,
    answers: { 200: Volume },
    refusals: ['name_taken', 'in_use'],
    handle: async ({ context, admin, params, body }) =>
      ok(await updateVolume(context, admin, { orgId: params.org, slug: params.volume }, body)),
  }),
  adminOperation({
    id: 'removeVolume',
    method: 'DELETE',
    path: volumePath,
    group,
    summary: 'Delete a volume that no profile mounts',
    answers: { 204: null },
    refusals: ['in_use'],
    handle: async ({ context, admin, params }) => {
      await removeVolume(context, admin, params.org, params.volume)
      return noContent
    },
  }),
]
