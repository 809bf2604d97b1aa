import type { FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import Type from 'typebox'
import { Refusal, type RefusalCode } from '../../base/errors.ts'
import type { Caller } from '../../core/caller.ts'
import type { Core } from '../../core/core.ts'
import type { FileStatus, OpenFile } from '../../core/storage/files.ts'
import type { Link } from '../../core/storage/signed-links.ts'
import { sendJson, startWriting } from '../answer.ts'
import { isUnchanged } from '../conditional.ts'
import { openRequest } from '../open-request.ts'
import type { Group, Operation, Raw, ServerContext } from '../operation.ts'
import { named } from '../schemas.ts'
import { attachment, etagOf, isolated, lastModifiedOf, readRange } from './download-headers.ts'
import { startBytes, uploadBody, withStart } from './upload-body.ts'

export const fileGroup: Group = { name: 'Files', description: 'Files of threads and volumes.' }

/** What every operation on a file can be refused with. */
export const fileRefusals: readonly RefusalCode[] = [
  'invalid_argument',
  'path_invalid',
  'thread_unknown',
  'path_not_found',
  'not_a_file',
  'threads_unavailable',
  'volumes_unavailable',
  'files_busy',
  'transfers_full',
  'unavailable',
]

/**
 * Reads the signed link in the path and finds the caller that it was made for.
 * @throws Refusal link_invalid, also when the key of the caller is revoked or expired.
 */
async function readLink(
  core: Core,
  request: FastifyRequest,
  reply: FastifyReply,
  method: 'GET' | 'PUT',
): Promise<[Link, Caller]> {
  const { token } = request.params as { token: string }
  const link = core.links.read(token, method)
  const caller = await core.callerOfLink(link)
  openRequest(core, request, reply, caller)
  request.open?.require((now) => core.requireCapability(now, method === 'GET' ? 'files.read' : 'files.write'))
  return [link, caller]
}

/** Sends a file or one range of it. HEAD sends the same headers without the bytes. */
const getBlob =
  ({ core }: ServerContext): RouteHandlerMethod =>
  async (request, reply) => {
    const [link, caller] = await readLink(core, request, reply, 'GET')
    const status = await core.files.stat(caller, link)
    if (status.isDirectory) throw new Refusal('not_a_file', { path: link.path, kind: 'directory' })
    const etag = etagOf(status)
    const lastModified = lastModifiedOf(status)
    reply.headers({
      'content-type': 'application/octet-stream',
      'content-disposition': attachment(link.path),
      ...isolated,
      'accept-ranges': 'bytes',
      ...(lastModified !== undefined && { 'last-modified': lastModified }),
      etag,
    })
    if (isUnchanged(request.headers, etag, lastModified)) return reply.code(304).send()
    const range = readRange(request.headers, status.sizeBytes)
    if (range === 'unsatisfiable') {
      reply.header('content-range', `bytes */${status.sizeBytes}`)
      throw new Refusal('range_unsatisfiable', { sizeBytes: status.sizeBytes })
    }
    const part = range ?? { offset: 0, lengthBytes: status.sizeBytes }
    reply.code(range ? 206 : 200).header('content-length', part.lengthBytes)
    if (range) {
      const { offset, lengthBytes } = range
      reply.header('content-range', `bytes ${offset}-${offset + lengthBytes - 1}/${status.sizeBytes}`)
    }
    if (request.method === 'HEAD') return void startWriting(reply).end()
    const file = await core.files.open(caller, link, part)
    return sendBytes(reply, file, part.lengthBytes, status)
  }

/**
 * Sends the bytes as fast as the client reads them. If the file changes meanwhile, the connection is closed before the
 * announced length, so that the client notices.
 * @throws Refusal file_busy where it changed before the first byte.
 */
async function sendBytes(reply: FastifyReply, file: OpenFile, lengthBytes: number, seen: FileStatus): Promise<void> {
  if (file.lengthBytes !== lengthBytes || file.status.sizeBytes !== seen.sizeBytes) {
    file.stop()
    throw new Refusal('file_busy', { path: 'the file' })
  }
  const writer = startWriting(reply)
  let sentBytes = 0
  try {
    for await (const piece of file.bytes) {
      if (writer.gone) break
      await writer.writeBytes(piece)
      sentBytes += piece.length
    }
  } catch {
    sentBytes = -1
  }
  if (sentBytes === lengthBytes) writer.end()
  else reply.raw.destroy()
}

/** Writes a file atomically. */
const putBlob =
  ({ core, uploadPace }: ServerContext): RouteHandlerMethod =>
  async (request, reply) => {
    const [link, caller] = await readLink(core, request, reply, 'PUT')
    const sizeBytes = link.sizeBytes ?? 0
    requireLength(request, sizeBytes)
    request.open?.holdBody(Math.min(sizeBytes, startBytes))
    await core.links.use(link)
    try {
      const body = await withStart(uploadBody(request.raw, sizeBytes, uploadPace), startBytes)
      const bytes = await core.files.write(caller, link, body)
      return await sendJson(reply, 200, JSON.stringify({ path: link.path, size: bytes }))
    } catch (error) {
      await core.links.giveBack(link)
      throw error
    }
  }

/** Checks the announced length, if any. The body itself is checked as it arrives. */
function requireLength({ headers }: FastifyRequest, sizeBytes: number): void {
  const length = headers['content-length']
  if (length === undefined) {
    if (sizeBytes > 0 && headers['transfer-encoding'] === undefined) throw new Refusal('length_required', { sizeBytes })
    return
  }
  const given = Number(length)
  if (given > sizeBytes) throw new Refusal('upload_too_large', { givenBytes: given, sizeBytes })
  if (given < sizeBytes) {
    const problem = `must be ${sizeBytes}, the size that the link was made for; it is ${given}`
    throw new Refusal('invalid_argument', { field: 'Content-Length', problem })
  }
}

const octets: Raw = { mediaType: 'application/octet-stream' }
const UploadedFile = named('UploadedFile', Type.Object({ path: Type.String(), size: Type.Integer({ minimum: 0 }) }))

const blob = { path: '/v1/blobs/{token}', access: 'open', group: fileGroup } as const

export const blobOperations: readonly Operation[] = [
  {
    ...blob,
    id: 'getBlob',
    method: 'GET',
    capability: 'files.read',
    summary: 'Download a file, or one range of it, through a signed link',
    answers: { 200: octets, 206: octets, 304: null },
    refusals: ['link_invalid', ...fileRefusals, 'range_unsatisfiable'],
    handler: getBlob,
  },
  {
    ...blob,
    id: 'headBlob',
    method: 'HEAD',
    capability: 'files.read',
    summary: 'Get the size of a file without its content through a signed link',
    answers: { 200: null, 206: null, 304: null },
    refusals: ['link_invalid'],
    handler: getBlob,
  },
  {
    ...blob,
    id: 'putBlob',
    method: 'PUT',
    capability: 'files.write',
    summary: 'Upload a file atomically through a signed link',
    body: octets,
    answers: { 200: UploadedFile },
    refusals: [
      'link_invalid',
      'link_used',
      'length_required',
      'upload_too_large',
      'upload_broken',
      'upload_too_slow',
      'thread_busy',
      'storage_full',
      ...fileRefusals,
    ],
    handler: putBlob,
  },
]
