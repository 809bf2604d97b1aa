import Type from 'typebox'
import type { RefusalCode } from '../../../base/errors.ts'
import type { FileChange } from '../../../base/sandbox.ts'
import { listMax } from '../../../core/sandboxes/files.ts'
import { keyOperation, noContent, type Operation, ok, type Raw } from '../../operation.ts'
import { ErrorBody, NextCursor, named, oneOf, union } from '../../schemas.ts'
import { line } from '../output-lines.ts'
import { contentParameters, getContent, place, putContent } from './file-content.ts'
import { flag, gone, keepRequiring, modeOf, pathOf, sendAsLines } from './requests.ts'
import { File, fileOnTheWire, namespaceParameter, refOf, sandboxGroup, sandboxRefusals } from './schemas.ts'

const path = '/v1/sandboxes/{name}/files'
const refusals: readonly RefusalCode[] = [
  ...sandboxRefusals,
  ...(['path_invalid', 'path_not_found', 'path_denied', 'not_a_file', 'not_a_directory', 'files_busy'] as const),
]
const writes: readonly RefusalCode[] = [...refusals, 'storage_full', 'path_exists']

const octets: Raw = { mediaType: 'application/octet-stream' }
const reads = { capability: 'sandboxes.files.read', group: sandboxGroup } as const
const changes = { capability: 'sandboxes.files.write', group: sandboxGroup, query: namespaceParameter } as const

const FileList = named('SandboxFileList', Type.Object({ data: Type.Array(File), next_cursor: NextCursor }))

const changeKinds = ['created', 'changed', 'deleted', 'moved_from', 'moved_to'] as const

const ChangeLine = union('SandboxFileChangeLine', 'type', 'One line.', [
  Type.Object({ type: oneOf(['watching']) }, { title: 'FilesWatchedLine', description: 'Changes from now on follow.' }),
  Type.Object({ type: oneOf(changeKinds), path: Type.String() }, { title: 'FileChangedLine' }),
  Type.Object({ type: oneOf(['heartbeat']) }, { title: 'FilesHeartbeatLine' }),
  Type.Object({ type: oneOf(['error']), ...ErrorBody.properties }, { title: 'FilesErrorLine' }),
])

const TwoPaths = named(
  'SandboxPathsRequest',
  Type.Object(
    {
      from: Type.String(),
      to: Type.String(),
      replace: Type.Optional(Type.Boolean({ description: 'Replace what is at `to`.' })),
      user: Type.Optional(Type.String()),
    },
    { additionalProperties: false },
  ),
)

const DirectoryBody = named(
  'SandboxDirectoryRequest',
  Type.Object(
    {
      path: Type.String(),
      parents: Type.Optional(Type.Boolean({ description: 'Create missing parents, and accept one that exists.' })),
      mode: Type.Optional(Type.String({ description: 'Permission bits in octal.' })),
      user: Type.Optional(Type.String()),
    },
    { additionalProperties: false },
  ),
)

const twoPaths = (verb: 'move' | 'copy', summary: string) =>
  keyOperation({
    ...changes,
    id: `${verb}SandboxFile`,
    method: 'POST',
    path: `${path}/${verb}`,
    summary,
    body: TwoPaths,
    answers: { 204: null },
    refusals: writes,
    handle: async ({ core, caller, params, query, body: { from, to, replace = false, user } }) => {
      const ref = refOf(params as { name: string }, query)
      await core.sandboxFiles[verb](caller, ref, { path: from, user }, to, replace)
      return noContent
    },
  })

export const sandboxFileOperations: readonly Operation[] = [
  keyOperation({
    ...reads,
    id: 'listSandboxFiles',
    method: 'GET',
    path,
    summary: 'List a directory of a sandbox by name',
    query: { ...place, cursor: 'The next_cursor of the previous page.', limit: `Entries per page, 1 to ${listMax}.` },
    answers: { 200: FileList },
    refusals,
    handle: async ({ core, caller, params, query }) => {
      const limit = query.limit === undefined ? undefined : Number(query.limit)
      const page = { cursor: query.cursor, limit }
      const { entries, cursor } = await core.sandboxFiles.list(caller, refOf(params, query), pathOf(query), page)
      return ok({ data: entries.map(fileOnTheWire), next_cursor: cursor ?? null })
    },
  }),
  keyOperation({
    ...reads,
    id: 'statSandboxFile',
    method: 'GET',
    path: `${path}/stat`,
    summary: 'Get the kind, the size, the mode and the owner of a file',
    query: place,
    answers: { 200: File },
    refusals,
    handle: async ({ core, caller, params, query }) =>
      ok(fileOnTheWire(await core.sandboxFiles.stat(caller, refOf(params, query), pathOf(query)))),
  }),
  keyOperation({
    ...reads,
    id: 'watchSandboxFiles',
    method: 'GET',
    path: `${path}/watch`,
    summary: 'Follow changes at or below a path, one line for each',
    query: { ...place, recursive: 'true watches directories below as well.' },
    answers: { 200: { mediaType: 'application/x-ndjson' } },
    lines: ChangeLine,
    refusals,
    handle: async ({ core, caller, params, query, reply }) => {
      await core.requireCapability(caller, 'sandboxes.files.read')
      keepRequiring(reply, { core }, 'sandboxes.files.read')
      const recursive = flag(query, 'recursive')
      const ref = refOf(params, query)
      const changes = await core.sandboxFiles.watch(caller, ref, pathOf(query), recursive, gone(reply))
      return sendAsLines(reply, watching(changes), line)
    },
  }),
  {
    ...reads,
    id: 'readSandboxFile',
    method: 'GET',
    path: `${path}/content`,
    access: 'key',
    query: place,
    summary: 'Download a file of a sandbox, or one range of it',
    answers: { 200: octets, 206: octets },
    refusals: [...refusals, 'transfers_full', 'range_unsatisfiable'],
    handler: getContent,
  },
  {
    ...changes,
    id: 'writeSandboxFile',
    method: 'PUT',
    path: `${path}/content`,
    access: 'key',
    query: contentParameters,
    summary: 'Write a file of a sandbox. An existing one keeps its mode and its owner',
    body: octets,
    answers: { 200: named('WrittenSandboxFile', Type.Object({ path: Type.String(), size_bytes: Type.Integer() })) },
    refusals: [...writes, 'transfers_full', 'upload_broken', 'upload_too_slow'],
    handler: putContent,
  },
  keyOperation({
    ...changes,
    id: 'createSandboxDirectory',
    method: 'POST',
    path: `${path}/directories`,
    summary: 'Create a directory in a sandbox',
    body: DirectoryBody,
    answers: { 204: null },
    refusals: writes,
    handle: async ({ core, caller, params, query, body: { path: at, parents, mode, user } }) => {
      const ref = refOf(params, query)
      await core.requireCapability(caller, 'sandboxes.files.write')
      await core.sandboxFiles.makeDirectory(caller, ref, { path: at, user }, { parents, mode: modeOf(mode) })
      return noContent
    },
  }),
  twoPaths('move', 'Move a file or a directory of a sandbox'),
  twoPaths('copy', 'Copy a file or a directory of a sandbox'),
  keyOperation({
    ...changes,
    id: 'deleteSandboxFile',
    method: 'DELETE',
    path,
    summary: 'Delete a file or a directory of a sandbox',
    query: { ...place, recursive: 'true deletes a directory with its content.' },
    answers: { 204: null },
    refusals: [...refusals, 'directory_not_empty'],
    handle: async ({ core, caller, params, query }) => {
      await core.requireCapability(caller, 'sandboxes.files.write')
      await core.sandboxFiles.remove(caller, refOf(params, query), pathOf(query), flag(query, 'recursive'))
      return noContent
    },
  }),
]

/** Reports that everything is watched, then what changes. */
async function* watching(changes: AsyncGenerator<FileChange, void, undefined>) {
  try {
    yield { type: 'watching' }
    for await (const { kind, path } of changes) yield { type: kind, path }
  } finally {
    await changes.return()
  }
}
