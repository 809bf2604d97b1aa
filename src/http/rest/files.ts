import type { FastifyRequest, RouteHandlerMethod } from 'fastify'
import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { parseJson } from '../../base/json.ts'
import { compile } from '../../base/schema-check.ts'
import type { Core } from '../../core/core.ts'
import { lifeMaxSeconds, uploadMaxBytes } from '../../core/storage/signed-links.ts'
import { blobUrl } from '../../tools/files/blob-url.ts'
import { sendJson } from '../answer.ts'
import { baseUrlOf } from '../base-url.ts'

const place = {
  source: Type.Unsafe<'thread' | 'volume'>({ type: 'string', enum: ['thread', 'volume'] }),
  id: Type.String({ description: 'The thread_id, or the slug of the volume.' }),
}
const path = Type.String({ description: 'Relative to the root of the thread or volume.' })
const life = Type.Optional(
  Type.Integer({
    minimum: 1,
    maximum: lifeMaxSeconds,
    description: 'How long the link is good; 15 minutes by default.',
  }),
)

export const ListBody = Type.Object(
  {
    ...place,
    path: Type.Optional(Type.String({ description: 'A directory; the root by default.' })),
    relative: Type.Optional(
      Type.Boolean({ description: 'Give paths relative to `path`; by default they are relative to the root.' }),
    ),
    cursor: Type.Optional(Type.String({ maxLength: 64 })),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
  },
  { additionalProperties: false },
)

export const UploadBody = Type.Object(
  {
    ...place,
    path,
    size: Type.Integer({ minimum: 0, maximum: uploadMaxBytes, description: 'Exact length of the file in bytes.' }),
    content_type: Type.Optional(Type.String({ maxLength: 255, description: 'Accepted and not kept.' })),
    once: Type.Optional(Type.Boolean({ description: 'Whether the link is good for one upload alone.' })),
    expires_in: life,
  },
  { additionalProperties: false },
)

export const DownloadBody = Type.Object({ ...place, path, expires_in: life }, { additionalProperties: false })

export const DeleteBody = Type.Object(
  {
    ...place,
    path: Type.Optional(path),
    paths: Type.Optional(Type.Array(Type.String(), { minItems: 1, maxItems: 1000 })),
    recursive: Type.Optional(Type.Boolean({ description: 'Whether a directory goes with all that it holds.' })),
  },
  { additionalProperties: false },
)

const checks = {
  list: compile(ListBody),
  upload: compile(UploadBody),
  download: compile(DownloadBody),
  delete: compile(DeleteBody),
}

const bodyOf = (request: FastifyRequest): unknown => parseJson(request.body as Buffer)

/** A part of a directory. */
export const listFiles =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const { files } = core
    const { source, id, path: directory = '', relative = false, cursor, limit = 1000 } = checks.list(bodyOf(request))
    const page = { limit, ...(cursor !== undefined && { cursor }) }
    const { entries, nextCursor } = await files.list(request.caller, { source, id, path: directory }, page)
    const above = relative ? '' : directory.split('/').filter(Boolean).join('/')
    const listed = entries.map(({ name, isDirectory, sizeBytes, modifiedMs }) => ({
      name,
      path: above === '' ? name : `${above}/${name}`,
      size: isDirectory ? 0 : sizeBytes,
      modified: new Date(modifiedMs).toISOString(),
      is_directory: isDirectory,
    }))
    return sendJson(reply, 200, JSON.stringify({ files: listed, next_cursor: nextCursor }))
  }

/** A link that uploads one file. */
export const uploadFile =
  (core: Core, publicUrl: string): RouteHandlerMethod =>
  async (request, reply) => {
    const { files, links } = core
    const { caller } = request
    const { source, id, path: name, size, once = false, expires_in: lifeSeconds } = checks.upload(bodyOf(request))
    const file = { source, id, path: name }
    await files.requireWritable(caller, file)
    const signed = await links.signUpload(caller, {
      ...file,
      sizeBytes: size,
      once,
      ...(lifeSeconds && { lifeSeconds }),
    })
    const headers = [{ name: 'Content-Length', value: String(size) }]
    return sendJson(reply, 200, linkBody(request, publicUrl, 'PUT', signed, headers))
  }

/** A link that downloads one file that is there. */
export const downloadFile =
  (core: Core, publicUrl: string): RouteHandlerMethod =>
  async (request, reply) => {
    const { files, links } = core
    const { caller } = request
    const { source, id, path: name, expires_in: lifeSeconds } = checks.download(bodyOf(request))
    const file = { source, id, path: name }
    const { isDirectory } = await files.stat(caller, file)
    if (isDirectory) throw new Refusal('not_a_file', { path: name, kind: 'directory' })
    const signed = await links.signDownload(caller, { ...file, ...(lifeSeconds && { lifeSeconds }) })
    return sendJson(reply, 200, linkBody(request, publicUrl, 'GET', signed, []))
  }

function linkBody(
  request: FastifyRequest,
  publicUrl: string,
  method: 'GET' | 'PUT',
  { token, expiresAt }: { token: string; expiresAt: string },
  headers: { name: string; value: string }[],
): string {
  return JSON.stringify({ url: blobUrl(baseUrlOf(request, publicUrl), token), method, headers, expires_at: expiresAt })
}

/** Deletes files, and directories with what they hold where asked. */
export const deleteFiles =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const { files } = core
    const { source, id, path: one, paths = [], recursive = false } = checks.delete(bodyOf(request))
    const all = one === undefined ? paths : [one, ...paths]
    if (all.length === 0) throw new Refusal('invalid_argument', { field: 'path', problem: 'is required and missing' })
    let deleted = 0
    for (const name of all) deleted += await files.delete(request.caller, { source, id, path: name }, recursive)
    return sendJson(reply, 200, JSON.stringify({ deleted }))
  }
