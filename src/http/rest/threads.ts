import Type from 'typebox'
import type { RefusalCode } from '../../base/errors.ts'
import { toPageRequest } from '../../core/paging.ts'
import { created, type Group, keyOperation, noContent, type Operation, ok, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, named } from '../schemas.ts'
import { forkExample, threadExample, threadsExample } from './examples.ts'

const group: Group = { name: 'Threads', description: 'Home directories that persist between runs.' }

const properties = {
  id: Type.String(),
  size_bytes: Type.Integer({ description: 'Disk space that it occupies.' }),
  created_at: Type.String(),
  last_used_at: Type.String(),
  busy: Type.Boolean({ description: 'Whether a run is using it.' }),
}
export const Thread = named('Thread', Type.Object(properties))
const InspectedThread = named(
  'InspectedThread',
  Type.Object({
    ...properties,
    quota_bytes: Type.Integer({ description: 'Maximum size of its files.' }),
    used_bytes: Type.Integer({ description: 'Current size of its files.' }),
  }),
)

const ForkBody = named(
  'ForkThreadRequest',
  Type.Object(
    { to: Type.String({ description: 'Name of the copy. It must not exist yet.' }) },
    { additionalProperties: false },
  ),
)

const refusals: readonly RefusalCode[] = ['invalid_argument', 'threads_unavailable', 'thread_unknown', 'unavailable']

export const threadOperations: readonly Operation[] = [
  keyOperation({
    id: 'listThreads',
    method: 'GET',
    path: '/v1/threads',
    capability: 'threads.read',
    group,
    summary: 'List the threads of the organization by name',
    query: pageParameters,
    example: threadsExample,
    answers: { 200: listOf(Thread) },
    refusals,
    handle: async ({ core, caller, query }) => okPage(await core.threads.list(caller, toPageRequest(query))),
  }),
  keyOperation({
    id: 'getThread',
    method: 'GET',
    path: '/v1/threads/{id}',
    capability: 'threads.read',
    group,
    summary: 'Get a thread with its size, its last use, and whether a run is using it',
    example: threadExample,
    answers: { 200: InspectedThread },
    refusals,
    handle: async ({ core, caller, params }) => ok(await core.threads.inspect(caller, params.id)),
  }),
  keyOperation({
    id: 'deleteThread',
    method: 'DELETE',
    path: '/v1/threads/{id}',
    capability: 'threads.write',
    group,
    summary: 'Delete a thread and all its files',
    answers: { 204: null },
    refusals: [...refusals, 'thread_busy'],
    handle: async ({ core, caller, params }) => {
      await core.threads.remove(caller, params.id)
      return noContent
    },
  }),
  keyOperation({
    id: 'forkThread',
    method: 'POST',
    path: '/v1/threads/{id}/fork',
    capability: 'threads.write',
    group,
    summary: 'Copy a thread atomically',
    body: ForkBody,
    example: forkExample,
    answers: { 201: InspectedThread },
    refusals: [...refusals, 'thread_busy', 'thread_exists'],
    handle: async ({ core, caller, params, body }) => created(await core.threads.fork(caller, params.id, body.to)),
  }),
]
