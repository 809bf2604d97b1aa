import Type from 'typebox'
import { toPageRequest } from '../../core/paging.ts'
import { keyOperation, type Operation, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, named, oneOf } from '../schemas.ts'

const CallerVolume = named(
  'Volume',
  Type.Object({
    slug: Type.String(),
    name: Type.String(),
    mode: oneOf(['ro', 'rw']),
    path: Type.String({ description: 'Where runs find it.' }),
    size_bytes: Type.Integer({ description: 'Disk space that it occupies.' }),
    quota_bytes: Type.Integer(),
    quota_files: Type.Integer(),
    created_at: Type.String(),
  }),
)

export const volumeOperations: readonly Operation[] = [
  keyOperation({
    id: 'listVolumes',
    method: 'GET',
    path: '/v1/volumes',
    capability: 'volumes.read',
    group: { name: 'Volumes', description: 'Directories that an organization shares.' },
    summary: 'List the volumes that runs of this key mount',
    query: pageParameters,
    answers: { 200: listOf(CallerVolume) },
    refusals: ['invalid_argument', 'unavailable'],
    handle: async ({ core, caller, query }) => okPage(await core.volumes.list(caller, toPageRequest(query))),
  }),
]
