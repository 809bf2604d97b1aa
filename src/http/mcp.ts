import type { FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import { Refusal } from '../base/errors.ts'
import type { Calls } from '../mcp/calls.ts'
import { handle } from '../mcp/handle.ts'
import { fault } from '../observe/log.ts'
import { type Catalog, chooseToolsets } from '../tools/catalog.ts'
import { sendJson, startWriting } from './answer.ts'
import type { HttpRooms } from './routes.ts'

/** Common clients and proxies wait one to five minutes for the head of an answer. */
const quietMs = 10_000

/** MCP over Streamable HTTP: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports */
export const mcp =
  ({ core, version, log }: HttpRooms, catalog: Catalog, calls: Calls): RouteHandlerMethod =>
  async (request, reply) => {
    const { caller, headers } = request
    const offer = catalog.offer(caller.profile, chooseToolsets(toolsetsAskedFor(request)))
    const context = { core, caller, offer, calls, serverVersion: version, quietMs, log: request.log as typeof log }
    const mcpHeaders = { protocolVersion: singleHeader(headers['mcp-protocol-version']), accept: headers.accept }
    const answer = await handle(mcpHeaders, request.body as Buffer, context)
    switch (answer.kind) {
      case 'empty':
        return reply.code(answer.status).send()
      case 'json':
        if (answer.retryAfterSeconds !== undefined) reply.header('retry-after', answer.retryAfterSeconds)
        return sendJson(reply, answer.status, answer.body)
      case 'stream':
        return sendEvents(reply, answer.messages, request.log as typeof log)
    }
  }

/** Each message is one server-sent event. When the client leaves, so do we; the call itself goes on. */
async function sendEvents(
  reply: FastifyReply,
  messages: AsyncGenerator<string, void, undefined>,
  log: HttpRooms['log'],
): Promise<void> {
  reply.code(200).header('content-type', 'text/event-stream').header('x-accel-buffering', 'no')
  const writer = startWriting(reply).keepAlive(': still running\n\n')
  try {
    for await (const message of messages) {
      await writer.write(`event: message\ndata: ${message}\n\n`)
      if (writer.gone) return
    }
  } catch (error) {
    fault(error, log)
  } finally {
    writer.end()
  }
}

function toolsetsAskedFor(request: FastifyRequest): string | undefined {
  const { toolsets } = request.query as { toolsets?: unknown }
  if (toolsets === undefined || typeof toolsets === 'string') return toolsets
  throw new Refusal('invalid_argument', { field: 'toolsets', problem: 'must be given once, as a list with commas' })
}

const singleHeader = (value: string | string[] | undefined): string | undefined =>
  Array.isArray(value) ? value.join(', ') : value
