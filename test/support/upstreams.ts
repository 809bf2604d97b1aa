import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import type { ReadableStream as WebStream } from 'node:stream/web'
import { Server as ServerV1 } from '@modelcontextprotocol/sdk/server/index.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { createMcpHandler, Server as ServerV2 } from '@modelcontextprotocol/server'

/** What an upstream received. */
export interface ReceivedMessage {
  method: string
  url: string
  headers: IncomingHttpHeaders
  body: string
}

/** An MCP server of the test, reached through the gateway. */
export interface TestUpstream {
  url: string
  received: ReceivedMessage[]
  close(): void
}

type Answer = (request: IncomingMessage, response: ServerResponse, body: Buffer) => unknown

/** Serves `answer` on a free port of loopback. */
export async function openUpstream(answer: Answer): Promise<TestUpstream> {
  const received: ReceivedMessage[] = []
  const server = createServer(async (request, response) => {
    const body = await buffer(request)
    const { method = '', url = '', headers } = request
    received.push({ method, url, headers, body: body.toString('utf8') })
    await answer(request, response, body)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    received,
    close: () => {
      server.closeAllConnections()
      server.close()
    },
  }
}

export const echoTool = {
  name: 'echo',
  description: 'Returns its text.',
  inputSchema: { type: 'object' as const, properties: { text: { type: 'string' } }, required: ['text'] },
}
const addTool = { name: 'add', description: 'Adds two numbers.', inputSchema: { type: 'object' as const } }

const resultOf = (name: string, given: Record<string, unknown> = {}) => {
  const text = name === 'add' ? String(Number(given.a) + Number(given.b)) : String(given.text)
  return { content: [{ type: 'text' as const, text }] }
}

function serverV1(tools: () => object[]): ServerV1 {
  const server = new ServerV1({ name: 'v1', version: '1' }, { capabilities: { tools: {} } })
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: tools() as [] }))
  server.setRequestHandler(CallToolRequestSchema, ({ params }) => resultOf(params.name, params.arguments))
  return server
}

/**
 * A server of the official SDK, version 1, that requires a session.
 * @param tools changes what it lists. @param serverOf creates another server.
 */
export async function openStatefulUpstream(
  tools: () => object[] = () => [echoTool, addTool],
  serverOf: () => ServerV1 = () => serverV1(tools),
): Promise<TestUpstream> {
  const sessions = new Map<string, StreamableHTTPServerTransport>()
  return openUpstream(async (request, response, body) => {
    const id = request.headers['mcp-session-id']
    let transport = sessions.get(String(id))
    if (transport === undefined) {
      const opened = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (session) => void sessions.set(session, opened),
      })
      await serverOf().connect(opened as Transport)
      transport = opened
    }
    await transport.handleRequest(request, response, body.length === 0 ? undefined : JSON.parse(body.toString()))
  })
}

/** A server of the official SDK, version 1, without sessions. */
export const openStatelessV1Upstream = (): Promise<TestUpstream> =>
  openUpstream(async (request, response, body) => {
    const transport = new StreamableHTTPServerTransport({})
    await serverV1(() => [echoTool, addTool]).connect(transport as Transport)
    await transport.handleRequest(request, response, body.length === 0 ? undefined : JSON.parse(body.toString()))
  })

/**
 * A server of the official SDK, version 2, without sessions, for both generations of the protocol.
 * @param guard answers a request in its place, and returns whether it did.
 * @param modernOnly refuses clients of the older generation. @param prepare changes each server.
 */
export async function openStatelessUpstream(
  guard: (request: IncomingMessage, response: ServerResponse) => Promise<boolean> = async () => false,
  { modernOnly = false, prepare = (_server: ServerV2): void => {} } = {},
): Promise<TestUpstream> {
  const handler = createMcpHandler(
    () => {
      const server = new ServerV2({ name: 'v2', version: '2' }, { capabilities: { tools: {} } })
      server.setRequestHandler('tools/list', () => ({ tools: [echoTool, addTool] }))
      server.setRequestHandler('tools/call', ({ params }) => resultOf(params.name, params.arguments))
      prepare(server)
      return server
    },
    modernOnly ? { legacy: 'reject' } : {},
  )
  return openUpstream(async (request, response, body) => {
    if (await guard(request, response)) return
    const headers = Object.entries(request.headers).filter(
      (entry): entry is [string, string] => typeof entry[1] === 'string',
    )
    const { method = 'GET' } = request
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    const answer = await handler.fetch(
      new Request(`http://${request.headers.host}${request.url}`, {
        ...{ method, headers, signal: gone.signal },
        ...(method === 'POST' && { body }),
      }),
    )
    response.writeHead(answer.status, Object.fromEntries(answer.headers))
    if (answer.body === null) response.end()
    // A client may disconnect at any time.
    else await pipeline(Readable.fromWeb(answer.body as WebStream), response).catch(() => {})
  })
}
