import type { OutgoingHttpHeaders } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyReply, RouteHandlerMethod } from 'fastify'
import { Refusal } from '../../base/errors.ts'
import type { RelayRequest } from '../../gateway/exchange.ts'
import type { DirectReply, RelayReply } from '../../gateway/reply.ts'
import { fault, type Log } from '../../observe/log.ts'
import { startWriting } from '../answer.ts'
import type { Operation, ServerContext } from '../operation.ts'
import type { Writer } from '../writer.ts'
import { gatewayGroup, keepAliveComment } from './group.ts'
import { openLegacySession, opensLegacySession } from './legacy-sse.ts'

/** Both paths of an upstream; the second one is in the configuration of clients. */
const paths = ['/mcp/{vendor}/{name}/sse', '/{vendor}/{name}/sse'] as const

const relayed = { access: 'key', capability: 'upstreams.call', group: gatewayGroup } as const

const refusals = [
  ...(['upstream_unknown', 'upstream_failed', 'upstream_misconfigured', 'upstream_timeout'] as const),
  ...(['upstream_tool_denied', 'upstream_full', 'invalid_request'] as const),
  ...(['upstream_login_required', 'upstream_login_failed', 'upstream_rate_limited'] as const),
]

export const relayOperations: readonly Operation[] = paths.flatMap((path, index): Operation[] => {
  const alias = index === 0 ? '' : 'ByShortPath'
  return [
    {
      ...{ ...relayed, path, id: `relayMessage${alias}`, method: 'POST' },
      summary: 'Send a message to an upstream MCP server',
      body: { mediaType: 'application/json' },
      answers: { 200: { mediaType: 'text/event-stream' }, 202: null },
      refusals,
      handler: relayHandler,
    },
    {
      ...{ ...relayed, path, id: `relayEvents${alias}`, method: 'GET' },
      summary: 'Open the stream of messages of an upstream MCP server',
      answers: { 200: { mediaType: 'text/event-stream' } },
      refusals,
      handler: relayHandler,
    },
    {
      ...{ ...relayed, path, id: `endRelayedSession${alias}`, method: 'DELETE' },
      summary: 'End a session with an upstream MCP server',
      answers: { 204: null },
      refusals,
      handler: relayHandler,
    },
  ]
})

function relayHandler(server: ServerContext): RouteHandlerMethod {
  const { gateway } = server
  return async (request, reply) => {
    const { vendor, name } = request.params as { vendor: string; name: string }
    if (opensLegacySession(request)) {
      request.open?.require((now) => gateway.requireAccess(now, `${vendor}/${name}`))
      return openLegacySession(server, request, reply, `${vendor}/${name}`)
    }
    const gone = new AbortController()
    reply.raw.once('close', () => {
      if (!reply.raw.writableFinished) gone.abort()
    })
    const { caller, method, headers } = request
    const body = (request.body as Buffer | undefined) ?? Buffer.alloc(0)
    // A stream may stay open for hours; it must not keep the body of its request.
    request.body = undefined
    const sent = { method: method as RelayRequest['method'], headers, body, signal: gone.signal }
    const upstream = `${vendor}/${name}`
    request.open?.require((now) => gateway.requireAccess(now, upstream))
    await send(reply, await gateway.relay(caller, upstream, sent))
  }
}

async function send(reply: FastifyReply, answer: RelayReply): Promise<void> {
  reply.headers(answer.headers)
  switch (answer.kind) {
    case 'body':
      await reply.code(answer.status).send(answer.body.length === 0 ? undefined : answer.body)
      return
    case 'stream':
      return answer.direct ? sendDirectly(reply, answer, answer.direct) : sendPieces(reply, answer)
  }
}

/** Sends what arrives as it arrives; a response that is there as a whole with its length, in one write. */
function sendDirectly(
  reply: FastifyReply,
  { isBetween, discard }: Extract<RelayReply, { kind: 'stream' }>,
  direct: DirectReply,
): void {
  const { raw, request } = reply
  if (reply.sent) {
    // Ended from outside, because its key was revoked meanwhile.
    discard()
    return
  }
  let writer: Writer | undefined
  const begin = () => {
    reply.code(200).header('x-accel-buffering', 'no')
    writer = startWriting(reply).keepAlive(keepAliveComment, { when: isBetween })
    return writer
  }
  direct.forward({
    take: (bytes, isLast) => {
      if (writer === undefined && isLast) {
        sendWhole(reply, bytes)
        return true
      }
      const to = writer ?? begin()
      const hasRoom = bytes === undefined || to.offer(bytes)
      if (isLast) to.end()
      else if (!hasRoom) void to.room().then(() => direct.resume())
      return hasRoom
    },
    fail: (error) => {
      if (!(error instanceof Refusal || raw.destroyed)) fault(error, request.log as Log)
      // The response has begun, and its end is missing: the client must not take it for complete.
      raw.destroy()
    },
  })
  if (reply.sent) return
  begin()
  raw.flushHeaders()
}

/** Larger responses are not copied. */
const copiedMaxBytes = 16 * 1024

function sendWhole(reply: FastifyReply, bytes: Buffer = Buffer.alloc(0)): void {
  const { raw } = reply
  reply.hijack()
  raw.on('error', () => {
    // The client disconnected.
  })
  const headers = { ...reply.getHeaders(), 'x-accel-buffering': 'no', 'content-length': bytes.length }
  raw.writeHead(200, headers as OutgoingHttpHeaders)
  // Node writes a text together with the headers, at once. Each byte is a character of Latin-1.
  if (bytes.length <= copiedMaxBytes) raw.end(bytes.toString('latin1'), 'latin1')
  else raw.end(bytes)
}

async function sendPieces(
  reply: FastifyReply,
  { pieces, isBetween }: Extract<RelayReply, { kind: 'stream' }>,
): Promise<void> {
  reply.code(200).header('x-accel-buffering', 'no')
  const writer = startWriting(reply).keepAlive(keepAliveComment, { when: isBetween })
  const collect = collectorOf(reply.raw.socket)
  collect()
  reply.raw.flushHeaders()
  try {
    for await (const piece of pieces) {
      collect()
      if (typeof piece === 'string') await writer.write(piece)
      else await writer.writeBytes(piece)
      if (writer.gone) return
    }
    writer.end()
  } catch (error) {
    if (!(error instanceof Refusal)) fault(error, reply.request.log as Log)
    // The response has begun, and its end is missing: the client must not take it for complete.
    reply.raw.destroy()
  }
}

/**
 * Returns a function after which all writes up to the end of this turn of the event loop are sent at once. A short response
 * is then one packet instead of three.
 */
function collectorOf(socket: Socket | null): () => void {
  let isCollecting = false
  return () => {
    if (isCollecting || socket === null) return
    isCollecting = true
    socket.cork()
    setImmediate(() => {
      isCollecting = false
      socket.uncork()
    })
  }
}
