import { randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import { Refusal } from '../../base/errors.ts'
import { SseClientSession } from '../../gateway/sse/client-session.ts'
import { fault, type Log } from '../../observe/log.ts'
import { startWriting } from '../answer.ts'
import { baseUrlOf } from '../base-url.ts'
import type { Operation, ServerContext } from '../operation.ts'
import { gatewayGroup, keepAliveComment } from './group.ts'

/** Maximum number of open sessions of clients with the HTTP+SSE transport, over all keys. */
const sessionsMax = 1_000
/** The same for one key. */
const ofKeyMax = 64
const retryAfterSeconds = 1

/** The open sessions by ID, which is random and known to the client only. */
const sessions = new WeakMap<object, Map<string, SseClientSession>>()

const sessionsOf = (gateway: object): Map<string, SseClientSession> => {
  const known = sessions.get(gateway) ?? new Map<string, SseClientSession>()
  sessions.set(gateway, known)
  return known
}

/**
 * Returns whether a GET request opens a session of the HTTP+SSE transport. Clients of Streamable HTTP send a session or a
 * protocol version.
 */
export const opensLegacySession = ({ method, headers }: FastifyRequest): boolean =>
  method === 'GET' && headers['mcp-session-id'] === undefined && headers['mcp-protocol-version'] === undefined

/**
 * Opens a session of a client that is configured with an address for SSE:
 * https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse
 */
export async function openLegacySession(
  { gateway, ...server }: ServerContext,
  request: FastifyRequest,
  reply: FastifyReply,
  upstream: string,
): Promise<void> {
  const { caller } = request
  await gateway.requireAccess(caller, upstream)
  const open = sessionsOf(gateway)
  const ofKey = [...open.values()].filter((session) => session.caller.keyId === caller.keyId).length
  if (open.size >= sessionsMax || ofKey >= ofKeyMax) {
    throw new Refusal('upstream_full', {
      upstream,
      limit: ofKey >= ofKeyMax ? ofKeyMax : sessionsMax,
      retryAfterSeconds,
    })
  }
  const id = randomUUID()
  const gone = new AbortController()
  const { promise: closed, resolve } = Promise.withResolvers<void>()
  reply.raw.once('close', resolve)
  reply.code(200).header('content-type', 'text/event-stream').header('x-accel-buffering', 'no')
  const writer = startWriting(reply).keepAlive(keepAliveComment)
  reply.raw.flushHeaders()
  const session = new SseClientSession(
    { caller, upstream },
    {
      send: (sent) => gateway.relay(caller, upstream, sent),
      write: (event) => writer.write(event),
      signal: gone.signal,
      onHeld: (bytes) => request.open?.holdUnread(bytes),
      onFault: (error) => fault(error, request.log as Log),
    },
  )
  open.set(id, session)
  // Relative, since a proxy may have another name; with the path prefix of the proxy.
  const { pathname } = new URL(baseUrlOf(request, server))
  const endpoint = `${pathname.replace(/\/$/, '')}/mcp/${upstream}/message?session_id=${id}`
  await writer.write(`event: endpoint\ndata: ${endpoint}\n\n`)
  await closed
  open.delete(id)
  gone.abort()
  await session.end().catch(() => {})
}

const messageHandler =
  ({ core, gateway }: ServerContext): RouteHandlerMethod =>
  async (request, reply) => {
    await core.requireCapability(request.caller, 'upstreams.call')
    const { vendor, name } = request.params as { vendor: string; name: string }
    const { session_id: id } = request.query as { session_id?: unknown }
    const session = typeof id === 'string' ? sessionsOf(gateway).get(id) : undefined
    if (session?.caller.keyId !== request.caller.keyId || session.upstream !== `${vendor}/${name}`) {
      throw new Refusal('upstream_session_unknown')
    }
    await gateway.requireAccess(request.caller, session.upstream)
    session.accept((request.body as Buffer | undefined) ?? Buffer.alloc(0))
    return reply.code(202).send()
  }

export const legacySseOperations: readonly Operation[] = [
  {
    ...{ id: 'relayLegacyMessage', method: 'POST', path: '/mcp/{vendor}/{name}/message' },
    ...{ access: 'key', capability: 'upstreams.call', group: gatewayGroup },
    summary: 'Send a message in a session that a GET request to an upstream MCP server has opened',
    query: { session_id: 'ID of the session, as in the endpoint event.' },
    body: { mediaType: 'application/json' },
    answers: { 202: null },
    refusals: ['upstream_session_unknown', 'upstream_unknown', 'invalid_request', 'messages_full'],
    handler: messageHandler,
  },
]
