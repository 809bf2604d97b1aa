import { Server as ServerV1 } from '@modelcontextprotocol/sdk/server/index.js'
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js'
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { createMcpHandler, ProtocolError, Server as ServerV2 } from '@modelcontextprotocol/server'
import { Refusal } from '../../src/base/errors.ts'
import { ActiveCalls } from '../../src/mcp/active-calls.ts'
import { ChangeFeed } from '../../src/mcp/change-feed.ts'
import { handle } from '../../src/mcp/handle.ts'
import { Sessions } from '../../src/mcp/legacy/sessions.ts'
import { LiveTasks } from '../../src/mcp/modern/live-tasks.ts'
import { Catalog } from '../../src/tools/catalog.ts'
import type { Tool } from '../../src/tools/tool.ts'
import type { OpenCore } from '../support/front.ts'

/** One HTTP request, as a client sends it. */
export interface Sent {
  headers: Readonly<Record<string, string>>
  body: string
}

/** The outcome, reduced to what is comparable between two servers. */
export interface Outcome {
  status: number
  /** `result` with its content, `error` with its code, `none` for an empty body, `other` for anything else. */
  said: string
  id: unknown
}

export type AnswerTo = (sent: Sent) => Promise<Outcome>

const listing = {
  name: 'echo',
  title: 'Echo',
  description: 'Says it again.',
  inputSchema: { type: 'object' as const, properties: { text: { type: 'string' } }, required: ['text'] },
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
}
const answerTo = (text: string) => ({ content: [{ type: 'text' as const, text }], isError: false })

const echo: Tool = {
  name: 'echo',
  toolset: 'execute',
  capabilities: [],
  mirrored: [],
  offered: () => true,
  listing: () => listing,
  call: async (_caller, given) => {
    const { text } = given as { text?: unknown }
    if (typeof text !== 'string') throw new Refusal('invalid_argument', { field: 'text', problem: 'must be a string' })
    return answerTo(text)
  },
}

const never = new AbortController().signal

/** Our own handler, without authentication in front of it. */
export function ours({ core, caller, log }: OpenCore): AnswerTo {
  const changes = new ChangeFeed()
  const offer = new Catalog({ tools: [echo], prompts: [], resources: [], templates: [] }).offer(caller.profile, [
    'execute',
  ])
  const state = {
    calls: new ActiveCalls(),
    sessions: new Sessions(),
    tasks: new LiveTasks(changes),
    changes,
    closing: never,
  }
  const context = {
    ...state,
    core,
    caller,
    offer,
    log,
    serverVersion: '1',
    baseUrl: 'http://localhost',
    results: caller.profile.calls,
    streamAfterMs: 60_000,
    wantsSession: false,
    requireTool: () => {},
    disconnected: () => never,
  }
  return async ({ headers, body }) => {
    const reply = await handle((name) => headers[name], Buffer.from(body), context)
    switch (reply.kind) {
      case 'empty':
        return { status: reply.status, said: 'none', id: undefined }
      case 'json':
        return toOutcome(reply.status, reply.body)
      case 'stream': {
        const messages: string[] = []
        for await (const message of reply.messages) messages.push(message)
        return toOutcome(200, messages.at(-1) ?? '')
      }
    }
  }
}

/** The official server, version 2; both protocol generations, no sessions. */
export function official(): AnswerTo {
  const handler = createMcpHandler(() => {
    const server = new ServerV2({ name: 'judge', version: '1' }, { capabilities: { tools: {}, logging: {} } })
    server.setRequestHandler('tools/list', () => ({ tools: [listing] }))
    server.setRequestHandler('tools/call', ({ params }) => {
      const text = params.arguments?.text
      if (params.name !== 'echo') throw new ProtocolError(-32602, 'Unknown tool')
      if (typeof text === 'string') return answerTo(text)
      return { content: [{ type: 'text', text: 'text must be a string' }], isError: true }
    })
    return server
  })
  return async (sent) => readResponse(await handler.fetch(toRequest(sent)))
}

/** The official server, version 1, without sessions; it supports only versions up to 2025-11-25. */
export function officialV1(): AnswerTo {
  return async (sent) => {
    const server = new ServerV1({ name: 'judge', version: '1' }, { capabilities: { tools: {}, logging: {} } })
    server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [listing] }))
    server.setRequestHandler(CallToolRequestSchema, ({ params }) => {
      const text = params.arguments?.text
      if (params.name !== 'echo') throw Object.assign(new Error('Unknown tool'), { code: -32602 })
      if (typeof text === 'string') return answerTo(text)
      return { content: [{ type: 'text', text: 'text must be a string' }], isError: true }
    })
    const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true })
    await server.connect(transport as Parameters<typeof server.connect>[0])
    try {
      return await readResponse(await transport.handleRequest(toRequest(sent)))
    } finally {
      await server.close()
    }
  }
}

const toRequest = ({ headers, body }: Sent): Request =>
  new Request('http://localhost/mcp', { method: 'POST', headers: { ...headers }, body })

async function readResponse(response: Response): Promise<Outcome> {
  const text = await response.text()
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream')
  const messages = text.split('\n').flatMap((line) => (line.startsWith('data: ') ? [line.slice('data: '.length)] : []))
  return toOutcome(response.status, isStream ? (messages.at(-1) ?? '') : text)
}

function toOutcome(status: number, body: string): Outcome {
  if (body === '') return { status, said: 'none', id: undefined }
  const message = JSON.parse(body)
  if (Array.isArray(message)) return { status, said: `batch of ${message.length}`, id: undefined }
  if (message.error) return { status, said: `error ${message.error.code}`, id: message.id ?? null }
  if (message.result) return { status, said: `result ${gist(message.result)}`, id: message.id }
  return { status, said: 'other', id: undefined }
}

/** The part of a result that is the same for every correct server. */
function gist(result: Record<string, unknown>): string {
  const { content, isError, tools, protocolVersion, supportedVersions, resultType } = result
  const names = Array.isArray(tools) ? tools.map(({ name }: { name: string }) => name) : undefined
  const texts = isError === true ? undefined : content
  return JSON.stringify({ texts, isError, names, protocolVersion, supportedVersions, resultType })
}
