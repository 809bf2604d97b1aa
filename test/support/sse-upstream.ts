import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { CallToolRequestSchema, ElicitResultSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { echoTool, openUpstream, type TestUpstream } from './upstreams.ts'

const inputSchema = { type: 'object' as const }
const tools = [
  echoTool,
  { name: 'ask', description: 'Asks the user.', inputSchema },
  { name: 'steps', description: 'Reports progress.', inputSchema },
  { name: 'wait', description: 'Waits until it is cancelled.', inputSchema },
]

/** Number of calls of `wait` that were cancelled. */
export const cancelled = { count: 0 }

/** A server of the official SDK with the HTTP+SSE transport. */
export interface SseUpstream extends TestUpstream {
  /** Closes its streams, as a restart does. */
  disconnect(): void
  /** Number of streams that are open. */
  readonly streams: number
}

export async function openSseUpstream(): Promise<SseUpstream> {
  const transports = new Map<string, { transport: SSEServerTransport; end: () => void }>()
  const upstream = await openUpstream(async (request, response, body) => {
    const url = new URL(request.url ?? '', 'http://localhost')
    if (request.method === 'GET') {
      const transport = new SSEServerTransport('/messages', response)
      transports.set(transport.sessionId, { transport, end: () => response.end() })
      response.once('close', () => transports.delete(transport.sessionId))
      await newServer().connect(transport as Transport)
      return
    }
    const found = transports.get(url.searchParams.get('sessionId') ?? '')
    if (found === undefined) response.writeHead(404).end()
    else await found.transport.handlePostMessage(request, response, JSON.parse(body.toString()))
  })
  return {
    ...upstream,
    disconnect: () => {
      for (const { end } of transports.values()) end()
    },
    get streams() {
      return transports.size
    },
  }
}

/** A server of the official SDK that asks its client, reports progress and waits. */
export function newServer(): Server {
  const server = new Server({ name: 'old', version: '1' }, { capabilities: { tools: {} } })
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools }))
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { sendRequest, sendNotification, signal }) => {
    const text = (content: string) => ({ content: [{ type: 'text' as const, text: content }] })
    const asked = { message: 'Proceed?', requestedSchema: { type: 'object' as const, properties: {} } }
    const ask = () =>
      sendRequest({ method: 'elicitation/create', params: asked }, ElicitResultSchema).then(
        ({ action }) => action,
        (error: Error) => `refused: ${error.message}`,
      )
    if (params.name === 'ask') return text(await ask())
    if (params.name === 'wait') {
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      cancelled.count++
    }
    const { progressToken } = params._meta ?? {}
    if (progressToken !== undefined) {
      await sendNotification({ method: 'notifications/progress', params: { progressToken, progress: 1, total: 2 } })
      // The client of the SDK drops progress that arrives together with the result.
      await ask()
    }
    return text(String(params.arguments?.text))
  })
  return server
}
