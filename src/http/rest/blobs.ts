/** What signed links lead to: the bytes of one file, down or up, without a key. */
import type { IncomingMessage } from 'node:http'
import type { FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../../core/caller.ts'
import type { Core } from '../../core/core.ts'
import type { FileStatus, OpenFile } from '../../core/storage/files.ts'
import type { Link } from '../../core/storage/signed-links.ts'
import { sendJson, startWriting } from '../answer.ts'
import { attachment, etagOf, readRange } from './download-headers.ts'

/** A sender that is silent for so long is gone; how long the whole takes is its own affair. */
const silenceMs = 60_000

/** Who the link stands for. @throws Refusal link_invalid, also when its key is revoked or over. */
async function bearerOf(core: Core, request: FastifyRequest, method: 'GET' | 'PUT'): Promise<[Link, Caller]> {
  const { token } = request.params as { token: string }
  const link = core.links.read(token, method)
  return [link, await core.callerOfLink(link)]
}

/** Sends a file, or the part that is asked for. HEAD is answered as GET, without the bytes. */
export const getBlob =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const [link, caller] = await bearerOf(core, request, 'GET')
    const status = await core.files.stat(caller, link)
    if (status.isDirectory) throw new Refusal('not_a_file', { path: link.path, kind: 'directory' })
    const etag = etagOf(status)
    reply.headers({
      'content-type': 'application/octet-stream',
      'content-disposition': attachment(link.path),
      'content-security-policy': 'sandbox',
      'accept-ranges': 'bytes',
      'last-modified': new Date(status.modifiedMs).toUTCString(),
      etag,
    })
    if (request.headers['if-none-match'] === etag) return reply.code(304).send()
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

/** At the client's pace. A file that changed since it was looked at ends the connection, never the answer as if whole. */
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

/** Writes a file, whole or not at all. */
export const putBlob =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const [link, caller] = await bearerOf(core, request, 'PUT')
    const sizeBytes = link.sizeBytes ?? 0
    requireLength(request, sizeBytes)
    await core.links.use(link)
    try {
      const bytes = await core.files.write(caller, link, exactly(request.raw, sizeBytes))
      return await sendJson(reply, 200, JSON.stringify({ path: link.path, size: bytes }))
    } catch (error) {
      await core.links.giveBack(link)
      throw error
    }
  }

function requireLength({ headers }: FastifyRequest, sizeBytes: number): void {
  const length = headers['content-length']
  if (length === undefined && (sizeBytes > 0 || headers['transfer-encoding'] !== undefined)) {
    throw new Refusal('length_required', { sizeBytes })
  }
  const given = Number(length ?? 0)
  if (given > sizeBytes) throw new Refusal('upload_too_large', { givenBytes: given, sizeBytes })
  if (given < sizeBytes) {
    const problem = `must be ${sizeBytes}, the size that the link was made for; it is ${given}`
    throw new Refusal('invalid_argument', { field: 'Content-Length', problem })
  }
}

/** The body as it arrives. @throws Refusal upload_broken where it ends early or stalls: nothing is written then. */
async function* exactly(request: IncomingMessage, sizeBytes: number): AsyncGenerator<Uint8Array, void, undefined> {
  const { socket } = request
  const stalled = () => request.destroy(new Error('the sender is silent'))
  socket.setTimeout(silenceMs, stalled)
  let receivedBytes = 0
  try {
    for await (const piece of request as AsyncIterable<Buffer>) {
      receivedBytes += piece.length
      yield piece
    }
  } catch {
    // It ends below.
  } finally {
    socket.setTimeout(0)
    socket.off('timeout', stalled)
  }
  if (receivedBytes !== sizeBytes) throw new Refusal('upload_broken', { receivedBytes, sizeBytes })
}
