import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { conformanceOffers } from '../conformance/inventory.ts'
import { type Front, openFront } from '../support/front.ts'

let front: Front
const offers = conformanceOffers()
beforeAll(async () => {
  front = await openFront(undefined, {}, offers)
})
afterAll(async () => {
  await front.close()
})

async function connect(path: string): Promise<Client> {
  const client = new Client({ name: 'asked', version: '1' }, { capabilities: { elicitation: {}, sampling: {} } })
  await client.connect(new StreamableHTTPClientTransport(new URL(`${front.url}${path}`)) as Transport)
  return client
}

const request = (method: string, params: object = {}) => ({ jsonrpc: '2.0', id: 1, method, params })
const events = { accept: 'text/event-stream' }

describe('an MCP session', () => {
  it('is created on request only, and is private to its client', async () => {
    const plain = await front.post('/mcp', request('initialize', { protocolVersion: '2025-11-25' }))
    expect(plain.headers.get('mcp-session-id')).toBeNull()
    const asked = await front.post('/mcp?session=true', request('initialize', { protocolVersion: '2025-11-25' }))
    expect(asked.headers.get('mcp-session-id')).toMatch(/^ses_[\w-]{20}$/)
  })

  it('lets a tool request input from the client and its user', async () => {
    const client = await connect('/mcp?session=true')
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => ({
      action: 'accept',
      content: { response: `to: ${params.message}` },
    }))
    client.setRequestHandler(CreateMessageRequestSchema, () => ({
      role: 'assistant',
      model: 'm',
      content: { type: 'text', text: 'thought' },
    }))
    const asked = await client.callTool({ name: 'test_elicitation', arguments: { message: 'Sure?' } })
    expect(JSON.stringify(asked)).toContain('to: Sure?')
    const sampled = await client.callTool({ name: 'test_sampling', arguments: { prompt: 'p' } })
    expect(JSON.stringify(sampled)).toContain('thought')
    await client.close()
  })

  it('does not let another client answer', async () => {
    const client = await connect('/mcp?session=true')
    const answered = Promise.withResolvers<object>()
    client.setRequestHandler(ElicitRequestSchema, async () => {
      for (const id of ['req_x', 1, 'null']) {
        const forged = { jsonrpc: '2.0', id, result: { action: 'accept', content: { response: 'forged' } } }
        expect((await front.post('/mcp', forged)).status).toBe(202)
      }
      answered.resolve({})
      return { action: 'decline' }
    })
    const result = await client.callTool({ name: 'test_elicitation', arguments: { message: 'Sure?' } })
    await answered.promise
    expect(JSON.stringify(result)).toContain('action=decline')
    await client.close()
  })

  it('receives changes on the stream of its client', async () => {
    const client = await connect('/mcp?session=true')
    const told: string[] = []
    client.setNotificationHandler(ToolListChangedNotificationSchema, () => void told.push('tools'))
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => void told.push(params.uri))
    await client.subscribeResource({ uri: 'test://watched-resource' })
    await sleep(100)
    offers.changes.publish({ kind: 'resource', uri: 'test://static-text' })
    offers.changes.publish({ kind: 'resource', uri: 'test://watched-resource' })
    offers.changes.publish({ kind: 'tools' })
    await vi.waitFor(() => expect(told).toEqual(['test://watched-resource', 'tools']))
    await client.close()
  })

  it('receives no log messages below its level', async () => {
    const client = await connect('/mcp?session=true')
    const logged: unknown[] = []
    client.fallbackNotificationHandler = async ({ params }) => void logged.push(params)
    await client.callTool({ name: 'test_tool_with_logging', arguments: {} })
    expect(logged).toHaveLength(3)
    await client.setLoggingLevel('error')
    await client.callTool({ name: 'test_tool_with_logging', arguments: {} })
    expect(logged).toHaveLength(3)
    await client.close()
  })

  it('ends on request of its client, and is then unknown', async () => {
    const opened = await front.post('/mcp?session=true', request('initialize', { protocolVersion: '2025-11-25' }))
    const headers = { 'mcp-session-id': opened.headers.get('mcp-session-id') ?? '' }
    expect((await front.post('/mcp', request('ping'), headers)).status).toBe(200)
    const ended = await fetch(`${front.url}/mcp`, { method: 'DELETE', headers })
    expect(ended.status).toBe(204)
    expect((await front.post('/mcp', request('ping'), headers)).status).toBe(404)
    expect((await fetch(`${front.url}/mcp`, { method: 'DELETE', headers })).status).toBe(404)
    expect((await fetch(`${front.url}/mcp`, { headers: { ...headers, ...events } })).status).toBe(404)
  })
})

describe('a client without a session', () => {
  it('is named what a tool that requests input needs', async () => {
    const call = request('tools/call', { name: 'test_elicitation', arguments: { message: 'Sure?' } })
    const answer = (await (await front.post('/mcp', call)).json()) as { error: { message: string } }
    expect(answer.error.message).toContain('elicitation')
    const subscribed = await front.post('/mcp', request('resources/subscribe', { uri: 'test://watched-resource' }))
    expect(((await subscribed.json()) as { error: { code: number } }).error.code).toBe(-32601)
  })

  it('can open a stream, which is only kept alive', async () => {
    const client = new AbortController()
    const response = await fetch(`${front.url}/mcp`, { headers: events, signal: client.signal })
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toBe('text/event-stream')
    const read = response.body?.getReader().read()
    offers.changes.publish({ kind: 'tools' })
    expect(await Promise.race([read, sleep(200).then(() => 'silence')])).toBe('silence')
    client.abort()
    await read?.catch(() => undefined)
  })

  it('cannot GET without accepting event streams', async () => {
    expect((await fetch(`${front.url}/mcp`, { headers: { accept: 'application/json' } })).status).toBe(406)
  })

  it('is unaffected by the session id of another server', async () => {
    expect((await front.post('/mcp', request('ping'), { 'mcp-session-id': 'abc' })).status).toBe(200)
  })
})
