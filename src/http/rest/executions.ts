import type { RouteHandlerMethod } from 'fastify'
import type { Core } from '../../core/core.ts'
import { sendJson } from '../answer.ts'

/** Ends a run; its answer arrives where it was asked for. The body is not looked at. */
export const cancelExecution =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const { id } = request.params as { id: string }
    await core.cancel(request.caller, id)
    reply.header('x-trace-id', id)
    return sendJson(reply, 200, JSON.stringify({ trace_id: id, status: 'cancelling' }))
  }
