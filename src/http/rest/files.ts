import type { FastifyRequest } from 'fastify'
import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { lifeMaxSeconds, uploadMaxBytes } from '../../core/storage/signed-links.ts'
import { blobUrl } from '../../tools/files/blob-url.ts'
import { baseUrlOf } from '../base-url.ts'
import { type Answer, keyOperation, type Operation, ok, type ServerContext } from '../operation.ts'
import { NextCursor, named, oneOf, Time } from '../schemas.ts'
import { fileGroup as group, fileRefusals as refusals } from './blobs.ts'
import { deleteFilesExample, downloadFileExample, listFilesExample, uploadFileExample } from './examples.ts'

const location = {
  source: oneOf(['thread', 'volume']),
  id: Type.String({ description: 'The thread_id, or the slug of the volume.' }),
}
const path = Type.String({ description: 'Relative to the root of the thread or volume.' })
const lifetime = Type.Optional(
  Type.Integer({
    minimum: 1,
    maximum: lifeMaxSeconds,
    description: 'Lifetime of the link in seconds; 900 by default.',
  }),
)

const ListBody = named(
  'ListFilesRequest',
  Type.Object(
    {
      ...location,
      path: Type.Optional(Type.String({ description: 'A directory; the root by default.' })),
      relative: Type.Optional(
        Type.Boolean({ description: 'Return paths relative to `path`; by default they are relative to the root.' }),
      ),
      cursor: Type.Optional(Type.String({ maxLength: 64 })),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
    },
    { additionalProperties: false },
  ),
)

const UploadBody = named(
  'UploadFileRequest',
  Type.Object(
    {
      ...location,
      path,
      size: Type.Optional(
        Type.Integer({
          minimum: 0,
          maximum: uploadMaxBytes,
          description: 'Exact size of the file in bytes; required.',
        }),
      ),
      content_length: Type.Optional(
        Type.Integer({ minimum: 0, maximum: uploadMaxBytes, description: 'Another name of `size`.' }),
      ),
      content_type: Type.Optional(Type.String({ maxLength: 255, description: 'Accepted, but not stored.' })),
      once: Type.Optional(Type.Boolean({ description: 'Whether the link accepts a single upload only.' })),
      expires_in: lifetime,
    },
    { additionalProperties: false },
  ),
)

const DownloadBody = named(
  'DownloadFileRequest',
  Type.Object({ ...location, path, expires_in: lifetime }, { additionalProperties: false }),
)

const DeleteBody = named(
  'DeleteFilesRequest',
  Type.Object(
    {
      ...location,
      path: Type.Optional(path),
      paths: Type.Optional(Type.Array(Type.String(), { minItems: 1, maxItems: 1000 })),
      recursive: Type.Optional(Type.Boolean({ description: 'Whether to delete directories with their content.' })),
    },
    { additionalProperties: false },
  ),
)

const FileList = named(
  'FileList',
  Type.Object({
    files: Type.Array(
      named(
        'File',
        Type.Object({
          name: Type.String(),
          path: Type.String(),
          size: Type.Integer({ minimum: 0, description: 'In bytes; 0 for a directory.' }),
          modified: Time,
          is_directory: Type.Boolean(),
        }),
      ),
    ),
    next_cursor: NextCursor,
  }),
)

const SignedLink = named(
  'Link',
  Type.Object({
    url: Type.String({ description: 'Requires no key.' }),
    method: oneOf(['GET', 'PUT']),
    headers: Type.Array(Type.Object({ name: Type.String(), value: Type.String() })),
    expires_at: Time,
  }),
)

const DeletedFiles = named(
  'DeletedFiles',
  Type.Object({
    deleted: Type.Integer({ minimum: 0, description: 'Number of files and directories deleted.' }),
  }),
)

/** Both paths are the same: the second one is that of the Python package `baponi`, with its name for the size. */
const uploadFile = (id: string, path: '/v1/files/upload' | '/v1/files/upload_url'): Operation =>
  keyOperation({
    id,
    method: 'POST',
    path,
    capability: 'files.write',
    group,
    summary: 'Create a link that uploads a file',
    body: UploadBody,
    example: uploadFileExample,
    answers: { 200: SignedLink },
    refusals,
    handle: async ({ server, core, caller, request, body }) => {
      const { source, id, path: name, once = false, expires_in: lifeSeconds } = body
      const file = { source, id, path: name }
      await core.files.requireWritable(caller, file)
      const size = body.size ?? body.content_length
      if (size === undefined)
        throw new Refusal('invalid_argument', { field: 'size', problem: 'is required and missing' })
      const upload = { ...file, sizeBytes: size, once, ...(lifeSeconds && { lifeSeconds }) }
      const headers = [{ name: 'Content-Length', value: String(size) }]
      return signedLink(request, server, 'PUT', await core.links.signUpload(caller, upload), headers)
    },
  })

const downloadFile = (id: string, path: '/v1/files/download' | '/v1/files/download_url'): Operation =>
  keyOperation({
    id,
    method: 'POST',
    path,
    capability: 'files.read',
    group,
    summary: 'Create a link that downloads a file',
    body: DownloadBody,
    example: downloadFileExample,
    answers: { 200: SignedLink },
    refusals,
    handle: async ({ server, core, caller, request, body }) => {
      const { source, id, path: name, expires_in: lifeSeconds } = body
      const file = { source, id, path: name }
      const { isDirectory } = await core.files.stat(caller, file)
      if (isDirectory) throw new Refusal('not_a_file', { path: name, kind: 'directory' })
      const download = { ...file, ...(lifeSeconds && { lifeSeconds }) }
      return signedLink(request, server, 'GET', await core.links.signDownload(caller, download), [])
    },
  })

export const fileOperations: readonly Operation[] = [
  keyOperation({
    id: 'listFiles',
    method: 'POST',
    path: '/v1/files/list',
    capability: 'files.read',
    group,
    summary: 'List a directory, page by page',
    body: ListBody,
    example: listFilesExample,
    answers: { 200: FileList },
    refusals: [...refusals, 'not_a_directory'],
    handle: async ({ core, caller, body }) => {
      const { source, id, path: directory = '', relative = false, cursor, limit = 1000 } = body
      const page = { limit, ...(cursor !== undefined && { cursor }) }
      const { entries, nextCursor } = await core.files.list(caller, { source, id, path: directory }, page)
      const parent = relative ? '' : directory.split('/').filter(Boolean).join('/')
      const files = entries.map(({ name, isDirectory, sizeBytes, modifiedMs }) => ({
        name,
        path: parent === '' ? name : `${parent}/${name}`,
        size: isDirectory ? 0 : sizeBytes,
        modified: new Date(modifiedMs).toISOString(),
        is_directory: isDirectory,
      }))
      return ok({ files, next_cursor: nextCursor })
    },
  }),
  uploadFile('uploadFile', '/v1/files/upload'),
  uploadFile('uploadFileByUrl', '/v1/files/upload_url'),
  downloadFile('downloadFile', '/v1/files/download'),
  downloadFile('downloadFileByUrl', '/v1/files/download_url'),
  keyOperation({
    id: 'deleteFiles',
    method: 'POST',
    path: '/v1/files/delete',
    capability: 'files.write',
    group,
    summary: 'Delete files, and directories with their content where `recursive` is true',
    body: DeleteBody,
    example: deleteFilesExample,
    answers: { 200: DeletedFiles },
    refusals: [...refusals, 'directory_not_empty', 'partly_deleted', 'thread_busy'],
    handle: async ({ core, caller, body }) => {
      const { source, id, path: one, paths = [], recursive = false } = body
      const all = one === undefined ? paths : [one, ...paths]
      if (all.length === 0) throw new Refusal('invalid_argument', { field: 'path', problem: 'is required and missing' })
      return ok({ deleted: await core.files.delete(caller, { source, id, paths: all }, recursive) })
    },
  }),
]

const signedLink = (
  request: FastifyRequest,
  server: ServerContext,
  method: 'GET' | 'PUT',
  { token, expiresAt }: { token: string; expiresAt: string },
  headers: { name: string; value: string }[],
): Answer => ok({ url: blobUrl(baseUrlOf(request, server), token), method, headers, expires_at: expiresAt })
