import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { Refusal } from '../base/errors.ts'
import { fault } from '../observe/log.ts'
import { errorBody, refusalHeaders, sendJson } from './answer.ts'

/** The one place where an error becomes an answer. Refusals by their row; anything else is logged once, by its id. */
export async function answerError(error: unknown, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  try {
    const refusal = toRefusal(error, request)
    refusalHeaders(reply, refusal)
    // A client that still sends would see a broken connection in place of this answer. Kept open, the rest of the
    // request is read and thrown away until it ends or has had the time of a whole request.
    if (!request.raw.complete) reply.removeHeader('connection')
    await sendJson(reply, refusal.row.http, errorBody(refusal))
  } catch (failure) {
    request.log.error({ err: failure }, 'answering an error failed')
    reply.raw.destroy()
  }
}

function toRefusal(error: unknown, request: FastifyRequest): Refusal {
  if (error instanceof Refusal) return error
  const { code, statusCode = 500 } = error as Partial<FastifyError>
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new Refusal('body_too_large', { limitBytes: request.routeOptions.bodyLimit ?? 0 })
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new Refusal('wrong_content_type')
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new Refusal('invalid_request', { problem: 'the body is not as long as Content-Length says' })
  }
  // The framework refuses malformed addresses and the like by itself, before any of our code ran.
  if (code?.startsWith('FST_') && statusCode < 500) {
    return new Refusal('invalid_request', { problem: 'the address or the headers are malformed' })
  }
  return new Refusal('fault', { faultId: fault(error, request.log as Parameters<typeof fault>[1]) })
}
