/**
 * One MCP server for the benchmark, in its own process: `node bench/mcp/server.ts KIND` prints its address.
 * All of them offer the same instant tool; `bare` answers everything with the same bytes.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Tool } from '../../src/tools/tool.ts'

export const kinds = ['bare', 'glovebox', 'sdk v1', 'sdk v2'] as const
export type Kind = (typeof kinds)[number]

const listing = {
  name: 'instant',
  title: 'Instant',
  description: 'Answers at once.',
  inputSchema: { type: 'object' as const, properties: { text: { type: 'string' } }, required: ['text'] },
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
}
const answerTo = (text: unknown) => ({ content: [{ type: 'text' as const, text: String(text) }], isError: false })
const capabilities = { tools: {} }

/** Of our own servers. */
const config = {
  host: '127.0.0.1',
  port: 0,
  maxBodyBytes: 4 * 1024 * 1024,
  connectionsMax: 8192,
  allowedHosts: [],
  allowedOrigins: [],
  trustedProxies: [],
  dev: true,
  version: '0',
  uploadPace: { minBytesPerSecond: 0, windowMs: 30_000 },
  runtimeAllowed: [],
  publicUrl: '',
  previewDomain: '',
}

async function start(kind: Kind): Promise<string> {
  switch (kind) {
    case 'bare':
      return serve(async (_request, response) => {
        response.setHeader('content-type', 'application/json')
        response.end('{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}],"isError":false}}')
      })
    case 'glovebox':
      return startGlovebox()
    case 'sdk v1':
      return startV1()
    case 'sdk v2':
      return startV2()
  }
}

async function startV1(): Promise<string> {
  const { Server } = await import('@modelcontextprotocol/sdk/server/index.js')
  const { StreamableHTTPServerTransport } = await import('@modelcontextprotocol/sdk/server/streamableHttp.js')
  const { CallToolRequestSchema, ListToolsRequestSchema } = await import('@modelcontextprotocol/sdk/types.js')
  return serve(async (request, response) => {
    const server = new Server({ name: 'v1', version: '1' }, { capabilities })
    server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [listing] }))
    server.setRequestHandler(CallToolRequestSchema, ({ params }) => answerTo(params.arguments?.text))
    const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true })
    response.on('close', () => void server.close())
    await server.connect(transport as Parameters<typeof server.connect>[0])
    await transport.handleRequest(request, response)
  })
}

async function startV2(): Promise<string> {
  const { createMcpHandler, Server } = await import('@modelcontextprotocol/server')
  const handler = createMcpHandler(() => {
    const server = new Server({ name: 'v2', version: '1' }, { capabilities })
    server.setRequestHandler('tools/list', () => ({ tools: [listing] }))
    server.setRequestHandler('tools/call', ({ params }) => answerTo(params.arguments?.text))
    return server
  })
  return serve(async (request, response) => {
    const answer = await handler.fetch(await toRequest(request))
    response.writeHead(answer.status, Object.fromEntries(answer.headers))
    response.end(Buffer.from(await answer.arrayBuffer()))
  })
}

/** Our own protocol implementation, HTTP server and core, with a tool that does nothing instead of running code. */
async function startGlovebox(): Promise<string> {
  const instant: Tool = {
    name: listing.name,
    toolset: 'execute',
    capabilities: [],
    mirrored: [],
    offered: () => true,
    listing: () => listing,
    call: async (_caller, given) => answerTo((given as { text: unknown }).text),
  }
  const [{ ChangeFeed }, { gatewayOf, openCore }, { buildServer }, { createLog }] = await Promise.all([
    import('../../src/mcp/change-feed.ts'),
    import('../../test/support/front.ts'),
    import('../../src/http/server.ts'),
    import('../../src/observe/log.ts'),
  ])
  const opened = await openCore()
  const app = await buildServer({
    core: opened.core,
    gateway: gatewayOf(opened.core),
    metrics: opened.metrics,
    log: createLog({ level: 'info', format: 'json', destination: process.stderr }),
    offers: { inventory: { tools: [instant], prompts: [], resources: [], templates: [] }, changes: new ChangeFeed() },
    config,
  })
  return app.listen({ host: '127.0.0.1', port: 0 })
}

async function toRequest(request: IncomingMessage): Promise<Request> {
  const pieces: Buffer[] = []
  for await (const piece of request) pieces.push(piece as Buffer)
  const headers = Object.entries(request.headers).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string',
  )
  return new Request(`http://${request.headers.host}${request.url}`, {
    method: 'POST',
    headers,
    body: Buffer.concat(pieces),
  })
}

async function serve(answer: (request: IncomingMessage, response: ServerResponse) => Promise<void>): Promise<string> {
  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => {
      console.error(error)
      response.destroy()
    })
  })
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

if (import.meta.main) console.log(await start(process.argv[2] as Kind))
