import type { FastifyReply, RouteHandlerMethod } from 'fastify'
import { Refusal } from '../../../base/errors.ts'
import type { OpenSandboxFile } from '../../../core/sandboxes/files.ts'
import { sendJson, startWriting } from '../../answer.ts'
import type { ServerContext } from '../../operation.ts'
import { readQuery } from '../../query.ts'
import { attachment, readRange } from '../download-headers.ts'
import { startBytes, uploadBody, withStart } from '../upload-body.ts'
import { flag, keepRequiring, modeOf, pathOf } from './requests.ts'
import { namespaceParameter, refOf } from './schemas.ts'

/** The query parameters that name a path. */
export const place = {
  ...namespaceParameter,
  path: 'Absolute path, or relative to the working directory of the sandbox.',
  user: 'User whose permissions apply; the user of the sandbox by default.',
}

export const contentParameters = {
  ...place,
  append: 'true appends to the file.',
  parents: 'true creates missing directories.',
  mode: 'Permission bits of a new file in octal.',
}

/** Sends a file as fast as the client reads it. */
export function getContent({ core }: ServerContext): RouteHandlerMethod {
  return async (request, reply) => {
    const { caller } = request
    await core.requireCapability(caller, 'sandboxes.files.read')
    keepRequiring(reply, { core }, 'sandboxes.files.read')
    const query = readQuery(request.query, place)
    const ref = refOf(request.params as { name: string }, query)
    const where = pathOf(query)
    const status = await core.sandboxFiles.stat(caller, ref, where)
    if (status.kind !== 'file') throw new Refusal('not_a_file', { path: where.path, kind: status.kind })
    reply.headers({
      'content-type': 'application/octet-stream',
      'content-disposition': attachment(status.path),
      // Opened from a web page, the file reaches nothing of this server, even in a browser that shows it.
      'content-security-policy': "sandbox; default-src 'none'",
      'accept-ranges': 'bytes',
    })
    const range = readRange(request.headers, status.sizeBytes)
    if (range === 'unsatisfiable') {
      reply.header('content-range', `bytes */${status.sizeBytes}`)
      throw new Refusal('range_unsatisfiable', { sizeBytes: status.sizeBytes })
    }
    const lengthBytes = range?.lengthBytes ?? status.sizeBytes
    if (range) {
      const last = range.offset + range.lengthBytes - 1
      reply.header('content-range', `bytes ${range.offset}-${last}/${status.sizeBytes}`)
    }
    reply.code(range ? 206 : 200).header('content-length', lengthBytes)
    if (request.method === 'HEAD') return void startWriting(reply).end()
    const { bytes } = await core.sandboxFiles.read(caller, ref, where, range ?? undefined)
    if (lengthBytes === 0) await sendOfUnknownLength(reply, bytes)
    else await sendContent(reply, bytes, lengthBytes)
  }
}

/** Sends exactly the announced number of bytes. A file that changed meanwhile closes the connection. */
async function sendContent(reply: FastifyReply, bytes: OpenSandboxFile['bytes'], lengthBytes: number): Promise<void> {
  const writer = startWriting(reply)
  let leftBytes = lengthBytes
  try {
    for await (const piece of bytes) {
      const part = piece.subarray(0, leftBytes)
      await writer.writeBytes(part)
      leftBytes -= part.length
      if (writer.gone || leftBytes === 0) break
    }
  } catch {
    leftBytes = -1
  }
  if (leftBytes === 0) writer.end()
  else reply.raw.destroy()
}

/** Sends a file of size 0, which has content all the same where the kernel makes it on reading, as in /proc. */
async function sendOfUnknownLength(reply: FastifyReply, bytes: OpenSandboxFile['bytes']): Promise<void> {
  const first = await bytes.next()
  if (!first.done) reply.removeHeader('content-length')
  const writer = startWriting(reply)
  try {
    for (let next = first; !next.done && !writer.gone; next = await bytes.next()) await writer.writeBytes(next.value)
    writer.end()
  } catch {
    reply.raw.destroy()
  } finally {
    await bytes.return()
  }
}

export function putContent({ core, uploadPace }: ServerContext): RouteHandlerMethod {
  return async (request, reply) => {
    const { caller, headers } = request
    await core.requireCapability(caller, 'sandboxes.files.write')
    keepRequiring(reply, { core }, 'sandboxes.files.write')
    const query = readQuery(request.query, contentParameters)
    const ref = refOf(request.params as { name: string }, query)
    await core.sandboxFiles.requireWritable(caller, ref)
    const where = pathOf(query)
    const mode = modeOf(query.mode)
    const how = { append: flag(query, 'append'), makeParents: flag(query, 'parents'), mode }
    const length = headers['content-length']
    const sizeBytes = length !== undefined ? Number(length) : headers['transfer-encoding'] === undefined ? 0 : null
    request.open?.holdBody(Math.min(sizeBytes ?? startBytes, startBytes))
    const body = await withStart(uploadBody(request.raw, sizeBytes, uploadPace), startBytes)
    const bytes = await core.sandboxFiles.write(caller, ref, where, body, how)
    await sendJson(reply, 200, JSON.stringify({ path: where.path, size_bytes: bytes }))
  }
}
