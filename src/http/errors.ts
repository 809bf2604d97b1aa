import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { Refusal } from '../base/errors.ts'
import { fault } from '../observe/log.ts'
import { errorBody, refusalHeaders, sendJson } from './answer.ts'
import { drainMaxBytes } from './connections.ts'

/** Turns every error into a response: a refusal by its row; anything else is logged once and answered with its id. */
export async function answerError(error: unknown, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  try {
    const refusal = toRefusal(error, request)
    refusalHeaders(reply, refusal)
    // The rest of a body is read and dropped, and its connection stays usable, unless the body is too large for that.
    if (!request.raw.complete) {
      if (Number(request.headers['content-length'] ?? 0) > drainMaxBytes) reply.header('connection', 'close')
      else if (refusal.code !== 'connections_full') reply.removeHeader('connection')
    }
    const { errorBody: write = errorBody } = request.routeOptions.config ?? {}
    await sendJson(reply, refusal.row.http, write(refusal))
  } catch (failure) {
    request.log.error({ err: failure }, 'answering an error failed')
    reply.raw.destroy()
  }
}

function toRefusal(error: unknown, request: FastifyRequest): Refusal {
  if (error instanceof Refusal) return error
  // The client disconnected while its body arrived: no fault, and the response has no reader.
  if (request.raw.errored !== null && error === request.raw.errored)
    return new Refusal('invalid_request', { problem: 'the connection was closed before the whole body had arrived' })
  const { code, statusCode = 500 } = error as Partial<FastifyError>
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new Refusal('body_too_large', { limitBytes: request.routeOptions.bodyLimit ?? 0 })
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new Refusal('wrong_content_type')
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new Refusal('invalid_request', { problem: 'the body is not as long as Content-Length says' })
  }
  // Fastify itself refuses malformed URLs and headers, before any of our code runs.
  if (code?.startsWith('FST_') && statusCode < 500) {
    return new Refusal('invalid_request', { problem: 'the address or the headers are malformed' })
  }
  return new Refusal('fault', { faultId: fault(error, request.log as Parameters<typeof fault>[1]) })
}
