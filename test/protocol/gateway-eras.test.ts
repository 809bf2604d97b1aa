import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from '@modelcontextprotocol/client'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { inputRequired } from '@modelcontextprotocol/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createUpstream, type UpstreamSettings } from '../../src/core/admin/upstreams.ts'
import { type Front, openFront } from '../support/front.ts'
import { cancelled, newServer, openSseUpstream } from '../support/sse-upstream.ts'
import {
  openStatefulUpstream,
  openStatelessUpstream,
  openStatelessV1Upstream,
  openUpstream,
  type TestUpstream,
} from '../support/upstreams.ts'

const version = '2026-07-28'
let front: Front
let org: string
let secret: string
let modern: TestUpstream
const opened: TestUpstream[] = []
let cancelledByModern = 0
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  org = (await createOrg(front.core.adminContext, operator, 'eras')).id
  secret = await newKey()
  await register('old/stateful', await openStatefulUpstream(undefined, newServer))
  await register('old/stateless', await openStatelessV1Upstream())
  await register('old/sse', await openSseUpstream(), { transport: 'sse' })
  modern = await openStatelessUpstream(undefined, {
    modernOnly: true,
    prepare: (server) =>
      server.setRequestHandler('tools/call', async ({ params: { name, arguments: given, _meta } }, { mcpReq }) => {
        const text = (text: string) => ({ content: [{ type: 'text' as const, text }] })
        if (name === 'ask') {
          const requestedSchema = { type: 'object' as const, properties: {} }
          return inputRequired({
            inputRequests: { go: inputRequired.elicit({ message: 'Proceed?', requestedSchema }) },
          })
        }
        if (name === 'wait') {
          await new Promise((resolve) => mcpReq.signal.addEventListener('abort', resolve))
          cancelledByModern++
        }
        const { progressToken } = _meta ?? {}
        if (progressToken !== undefined) {
          await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: 1, total: 2 } })
        }
        return text(String(given?.text))
      }),
  })
  await register('new/modern', modern)
})
afterAll(async () => {
  await front.close()
  for (const upstream of opened) upstream.close()
})

const newKey = async (): Promise<string> => (await createKey(front.core.adminContext, operator, org, {}, [])).secret

async function register(name: string, upstream: TestUpstream, settings: UpstreamSettings = {}): Promise<void> {
  opened.push(upstream)
  await createUpstream(front.core.adminContext, operator, { orgId: org, name }, { url: upstream.url, ...settings })
}

const urlOf = (name: string): URL => new URL(`${front.url}/${name}/sse`)
const requestInit = (key = secret) => ({ headers: { authorization: `Bearer ${key}` } })

/** A client that speaks 2026-07-28 only. */
async function connectModern(name: string, { asks = true, key = secret } = {}): Promise<ModernClient> {
  const client = new ModernClient(
    { name: 'judge', version: '1' },
    { capabilities: asks ? { elicitation: {} } : {}, versionNegotiation: { mode: { pin: version } } },
  )
  if (asks) client.setRequestHandler('elicitation/create', () => ({ action: 'accept' as const, content: {} }))
  await client.connect(new ModernTransport(urlOf(name), { requestInit: requestInit(key) }))
  return client
}

/** A client that speaks the versions up to 2025-11-25 only. */
async function connectLegacy(name: string): Promise<Client> {
  const client = new Client({ name: 'judge', version: '1' }, { capabilities: { elicitation: {} } })
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept' as const, content: {} }))
  await client.connect(new StreamableHTTPClientTransport(urlOf(name), { requestInit: requestInit() }) as Transport)
  return client
}

const textOf = ({ content }: object & { content?: unknown }) => (content as { text: string }[])[0]?.text

describe('a client that only speaks 2026-07-28', () => {
  it.each(['old/stateful', 'old/stateless', 'old/sse'])('lists and calls the tools of %s', async (name) => {
    const client = await connectModern(name)
    expect(client.getServerVersion()).toMatchObject({ version: '1' })
    expect((await client.listTools()).tools.map((tool) => tool.name)).toContain('echo')
    const texts = ['a', 'b', 'c'].map(async (text) =>
      textOf(await client.callTool({ name: 'echo', arguments: { text } })),
    )
    expect(await Promise.all(texts)).toEqual(['a', 'b', 'c'])
    await client.close()
  })

  it.each(['old/stateful', 'old/sse'])('gets the progress of %s, and answers its questions', async (name) => {
    const client = await connectModern(name)
    const progress: unknown[] = []
    const onprogress = (step: unknown) => progress.push(step)
    expect(textOf(await client.callTool({ name: 'ask', arguments: {} }))).toBe('accept')
    const steps = await client.callTool({ name: 'steps', arguments: { text: 'done' } }, { onprogress })
    expect(textOf(steps)).toBe('done')
    expect(progress).toContainEqual({ progress: 1, total: 2 })
    await client.close()
  })

  it.each(['old/stateful', 'old/sse'])('is not asked by %s where it has declared no answers', async (name) => {
    const client = await connectModern(name, { asks: false })
    expect(textOf(await client.callTool({ name: 'ask', arguments: {} }))).toMatch(/^refused: .*(elicitation|answer)/)
    await client.close()
  })

  it.each(['old/stateful', 'old/sse'])('cancels a call of %s by disconnecting', async (name) => {
    const client = await connectModern(name)
    const before = cancelled.count
    const leaving = new AbortController()
    const call = client.callTool({ name: 'wait', arguments: {} }, { signal: leaving.signal })
    setTimeout(() => leaving.abort(), 200)
    await expect(call).rejects.toThrow()
    await expect.poll(() => cancelled.count).toBe(before + 1)
    await client.close()
  })

  it('opens one session for all its messages, and shares none with another key', async () => {
    const upstream = await openStatefulUpstream(undefined, newServer)
    await register('old/counted', upstream)
    const sessions = () => upstream.received.filter(({ body }) => body.includes('"initialize"')).length
    const [mine, other] = [
      await connectModern('old/counted'),
      await connectModern('old/counted', { key: await newKey() }),
    ]
    for (const client of [mine, other, mine]) await client.callTool({ name: 'echo', arguments: { text: 'x' } })
    expect(sessions()).toBe(2)
    await Promise.all([mine.close(), other.close()])
  })

  it('is refused the state of a question that another key was asked, or that belongs to another call', async () => {
    const meta = { 'io.modelcontextprotocol/protocolVersion': version }
    const _meta = { ...meta, 'io.modelcontextprotocol/clientCapabilities': { elicitation: {} } }
    const headers = { 'mcp-protocol-version': version, 'mcp-method': 'tools/call', 'mcp-name': 'ask' }
    const post = async (params: object, key = secret) => {
      const message = {
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: { name: 'ask', arguments: {}, ...params, _meta },
      }
      const response = await front.post('/old/stateful/sse', message, { authorization: `Bearer ${key}`, ...headers })
      return JSON.parse(/data: (.*)/.exec(await response.text())?.[1] ?? '') as Record<string, Record<string, unknown>>
    }
    await (await connectModern('old/stateful')).close()
    const { result } = await post({})
    expect(result).toMatchObject({ resultType: 'input_required', inputRequests: { question: { params: {} } } })
    const { requestState } = result!
    const inputResponses = { question: { action: 'decline' } }
    const unknown = { error: { code: -32602 } }
    expect(await post({ requestState, inputResponses }, await newKey())).toMatchObject(unknown)
    expect(await post({ requestState, inputResponses, arguments: { other: true } })).toMatchObject(unknown)
    expect(await post({ requestState: 'guessed', inputResponses })).toMatchObject(unknown)
    expect(await post({ requestState })).toMatchObject({ result: { resultType: 'input_required' } })
    expect(await post({ requestState, inputResponses })).toMatchObject({ result: { content: [{ text: 'decline' }] } })
    expect(await post({ requestState, inputResponses })).toMatchObject(unknown)
  })

  it('gets the response to its own request only, whatever else an upstream sends', async () => {
    const hostile = await openUpstream((request, response, body) => {
      const { id, method } = JSON.parse(body.toString() || '{}') as { id?: unknown; method?: string }
      const send = (...messages: object[]) => {
        response.writeHead(200, { 'content-type': 'text/event-stream', 'mcp-session-id': 's' })
        for (const message of messages)
          response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\r\n\r\n`)
      }
      if (request.headers['mcp-method'] !== undefined) return response.writeHead(400).end()
      if (method === 'initialize') return send({ id, result: { protocolVersion: '2025-06-18', serverInfo: {} } })
      if (id === undefined) return response.writeHead(202).end()
      // The stream stays open, as do those of the other responses.
      const progress = { method: 'notifications/progress', params: { progressToken: 'foreign', progress: 1 } }
      return send({ id: 'foreign', result: {} }, { id: 1, result: {} }, progress, { id, result: { mine: true } })
    })
    await register('hostile/ids', hostile)
    const headers = { 'mcp-protocol-version': version, 'mcp-method': 'tools/call', 'mcp-name': 'x' }
    const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'x', arguments: {} } }
    const response = await front.post('/hostile/ids/sse', message, { authorization: `Bearer ${secret}`, ...headers })
    const events = (await response.text()).split('\n\n').filter(Boolean)
    expect(events).toHaveLength(1)
    expect(JSON.parse(events[0]!.split('data: ')[1]!)).toMatchObject({ id: 1, result: { mine: true } })
  })

  it('gets the errors of an upstream of its own version unchanged', async () => {
    const headers = { 'mcp-protocol-version': version, 'mcp-method': 'nope/nope' }
    const meta = { 'io.modelcontextprotocol/protocolVersion': version }
    const params = { _meta: { ...meta, 'io.modelcontextprotocol/clientCapabilities': {} } }
    const post = (method: string) =>
      front.post(
        '/new/modern/sse',
        { jsonrpc: '2.0', id: 1, method, params },
        { authorization: `Bearer ${secret}`, ...headers },
      )
    const [unknown, mismatch] = [await post('nope/nope'), await post('tools/list')]
    expect([unknown.status, await unknown.json()]).toMatchObject([404, { error: { code: -32601 } }])
    expect([mismatch.status, await mismatch.json()]).toMatchObject([400, { error: { code: -32020 } }])
    expect(modern.received.some(({ body }) => body.includes('"initialize"'))).toBe(false)
  })
})

describe('a client of the versions up to 2025-11-25', () => {
  it('lists and calls the tools of an upstream that only speaks 2026-07-28, and gets its progress', async () => {
    const client = await connectLegacy('new/modern')
    expect((await client.listTools()).tools.map((tool) => tool.name)).toContain('echo')
    const progress: unknown[] = []
    const params = { name: 'echo', arguments: { text: 'done' } }
    const result = await client.callTool(params, undefined, { onprogress: (step) => progress.push(step) })
    expect([textOf(result as object), progress]).toEqual(['done', [{ progress: 1, total: 2 }]])
    await client.close()
  })

  it('cancels a call of such an upstream', async () => {
    const client = await connectLegacy('new/modern')
    const leaving = new AbortController()
    const call = client.callTool({ name: 'wait', arguments: {} }, undefined, { signal: leaving.signal })
    await expect.poll(() => modern.received.some(({ body }) => body.includes('"wait"'))).toBe(true)
    leaving.abort()
    await expect(call).rejects.toThrow()
    await expect.poll(() => cancelledByModern).toBe(1)
    await client.close()
  })

  it('reads why such an upstream cannot ask it', async () => {
    const client = await connectLegacy('new/modern')
    await expect(client.callTool({ name: 'ask', arguments: {} })).rejects.toThrow(/elicitation|input|capabilit/i)
    await client.close()
  })
})
