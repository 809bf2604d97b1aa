import type { FastifyReply, FastifyRequest } from 'fastify'
import type { RequestOwner } from '../core/access/open-requests.ts'
import type { Core } from '../core/core.ts'

/**
 * Registers a request under its owner, with the memory that its body needs.
 * @throws Refusal `requests_full`, `buffers_full`.
 */
export function openRequest(core: Core, request: FastifyRequest, reply: FastifyReply, owner: RequestOwner): void {
  const open = core.openRequests.open(owner, (refusal) => {
    // A response that has started is cut off, so that it cannot be mistaken for a complete one.
    if (reply.sent || !request.raw.complete) request.raw.socket.destroy()
    else reply.send(refusal)
  })
  request.open = open
  const { 'content-length': length, 'transfer-encoding': chunked } = request.headers
  const { config, bodyLimit } = request.routeOptions
  if (config.bodyKind === 'file' || (length === undefined && chunked === undefined)) return
  open.holdBody(Math.min(chunked === undefined ? Number(length) : bodyLimit, bodyLimit))
}
