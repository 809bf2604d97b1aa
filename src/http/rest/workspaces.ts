import Type from 'typebox'
import { type Review, workspaceModes, workspacePath } from '../../base/host-workspace.ts'
import { reviewText } from '../../tools/workspace/review.ts'
import { keyOperation, type Operation, ok } from '../operation.ts'
import { listOf, named, oneOf } from '../schemas.ts'

const group = {
  name: 'Workspaces',
  description:
    'Directories of the machine that the operator of a server in development mode shares with coding agents, and the changes that wait for review.',
}

const HostWorkspace = named(
  'HostWorkspace',
  Type.Object({
    name: Type.String({ description: 'Name of the workspace and of its sandbox.' }),
    directory: Type.String({ description: 'On the machine of the server.' }),
    mode: oneOf(workspaceModes),
    path: Type.String({ description: 'Where the sandbox has it.' }),
  }),
)

const ReviewedChange = named(
  'ReviewedChange',
  Type.Object({
    path: Type.String({ description: 'Relative to the directory.' }),
    change: oneOf(['added', 'modified', 'deleted']),
    kind: oneOf(['file', 'directory', 'link']),
    size_bytes: Type.Integer({ description: 'Of the new file.' }),
  }),
)

const changes = {
  changes: Type.Array(ReviewedChange),
  unsupported: Type.Array(Type.String(), {
    description: 'Sockets, FIFOs and names that are not UTF-8, which cannot be applied.',
  }),
  incomplete: Type.Boolean({ description: 'Whether there are more changes than are listed.' }),
}
const Changes = named(
  'WorkspaceChanges',
  Type.Object({ ...changes, diff: Type.String({ description: 'Unified diff.' }) }),
)
const Settled = named('SettledChanges', Type.Object(changes))

const Paths = Type.Object(
  {
    paths: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 4096 }), {
        minItems: 1,
        maxItems: 1_000,
        description: 'Files, and directories with everything below them. Default: all changes.',
      }),
    ),
  },
  { additionalProperties: false },
)

const toChanges = ({ changes: found, unsupported, isIncomplete }: Review) => ({
  changes: found.map(({ path, change, kind, sizeBytes }) => ({ path, change, kind, size_bytes: sizeBytes })),
  unsupported,
  incomplete: isIncomplete,
})

const refusals = ['not_found', 'review_unavailable', 'invalid_argument', 'unavailable'] as const
const settleRefusals = [...refusals, 'path_not_found', 'path_invalid', 'sandbox_busy', 'storage_full'] as const

const settle = (act: 'apply' | 'drop', summary: string): Operation =>
  keyOperation({
    id: `${act}WorkspaceChanges`,
    method: 'POST',
    path: `/v1/workspaces/{name}/${act}`,
    capability: 'workspaces.review',
    group,
    summary,
    body: Paths,
    answers: { 200: Settled },
    refusals: settleRefusals,
    handle: async ({ core, caller, params: { name }, body: { paths } }) =>
      ok(toChanges(await core.reviews.settle(caller, act, name, paths))),
  })

export const workspaceOperations: readonly Operation[] = [
  keyOperation({
    id: 'listWorkspaces',
    method: 'GET',
    path: '/v1/workspaces',
    capability: 'workspaces.read',
    group,
    summary: 'List the directories of the machine that are workspaces',
    answers: { 200: listOf(HostWorkspace) },
    refusals: [],
    handle: async ({ core, caller }) => {
      const data = (await core.reviews.list(caller)).map(({ name, directory, mode }) => ({
        ...{ name, directory, mode, path: workspacePath(name) },
      }))
      return ok({ data, next_cursor: null })
    },
  }),
  keyOperation({
    id: 'getWorkspaceChanges',
    method: 'GET',
    path: '/v1/workspaces/{name}/changes',
    capability: 'workspaces.read',
    group,
    summary: 'Show the changes of a workspace that wait for review',
    query: { path: 'A file, or a directory with everything below it. Default: all changes.' },
    answers: { 200: Changes },
    refusals,
    handle: async ({ core, caller, params: { name }, query: { path } }) => {
      const review = await core.reviews.changes(caller, name, path === undefined ? undefined : [path], true)
      return ok({ ...toChanges(review), diff: reviewText(review) })
    },
  }),
  settle('apply', 'Apply changes to the directory; stops the sandbox of the workspace'),
  settle('drop', 'Drop changes; stops the sandbox of the workspace'),
]
