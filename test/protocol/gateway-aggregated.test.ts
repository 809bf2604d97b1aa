import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createUpstream, refreshUpstream } from '../../src/core/admin/upstreams.ts'
import { nameOf } from '../../src/tools/upstreams/upstream-tools.ts'
import { type Front, openFront } from '../support/front.ts'
import { openStatefulUpstream, openStatelessUpstream, openUpstream, type TestUpstream } from '../support/upstreams.ts'

let front: Front
let org: string
let secret: string
const opened: TestUpstream[] = []
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  org = (await createOrg(front.core.adminContext, operator, 'aggregated')).id
  secret = await newKey(null)
  await register('acme/stateful', await openStatefulUpstream())
  await register('acme/stateless', await openStatelessUpstream())
  const dying = await openStatelessUpstream()
  await register('acme/dying', dying)
  dying.close()
})
afterAll(async () => {
  await front.close()
  for (const upstream of opened) upstream.close()
})

async function register(name: string, upstream: TestUpstream): Promise<void> {
  opened.push(upstream)
  const ref = { orgId: org, name }
  await createUpstream(front.core.adminContext, operator, ref, { url: upstream.url })
  await refreshUpstream(front.core.adminContext, operator, ref)
}

const newKey = async (tools: string[] | null): Promise<string> =>
  (await createKey(front.core.adminContext, operator, org, { tools }, ['sandbox_execute'])).secret

async function connect(path: string, key = secret): Promise<Client> {
  const client = new Client({ name: 'judge', version: '1' })
  const transport = new StreamableHTTPClientTransport(new URL(front.url + path), {
    requestInit: { headers: { authorization: `Bearer ${key}` } },
  })
  await client.connect(transport as Transport)
  return client
}

const namesIn = async (client: Client) => (await client.listTools()).tools.map(({ name }) => name)

describe('the endpoint with all tools', () => {
  it('lists the tools of all upstreams beside our own, also of one that is down', async () => {
    const client = await connect('/v1/mcp?toolsets=execute')
    expect(await namesIn(client)).toEqual([
      'sandbox_execute',
      ...['acme_dying__echo', 'acme_dying__add', 'acme_stateful__echo', 'acme_stateful__add'],
      ...['acme_stateless__echo', 'acme_stateless__add'],
    ])
    await client.close()
    const own = await connect('/mcp?toolsets=execute')
    expect(await namesIn(own)).toEqual(['sandbox_execute'])
    await own.close()
  })

  it('calls tools of every upstream and our own, and reports one that is down', async () => {
    const client = await connect('/v1/mcp?toolsets=execute')
    const call = (name: string, given: object) => client.callTool({ name, arguments: { ...given } })
    expect((await call('acme_stateful__add', { a: 2, b: 3 })).content).toEqual([{ type: 'text', text: '5' }])
    expect((await call('acme_stateless__echo', { text: 'x' })).content).toEqual([{ type: 'text', text: 'x' }])
    expect(JSON.stringify(await call('sandbox_execute', { code: 'echo own', language: 'bash' }))).toContain('own')
    expect(JSON.stringify(await call('acme_dying__echo', { text: 'x' }).catch(String))).toMatch(
      'refused the connection',
    )
    await client.close()
  })

  it('shows a limited key only what it may call', async () => {
    const limited = await connect('/v1/mcp?toolsets=execute', await newKey(['acme/stateful#add', 'sandbox_execute']))
    expect(await namesIn(limited)).toEqual(['sandbox_execute', 'acme_stateful__add'])
    await limited.close()
    const own = await connect('/v1/mcp?toolsets=execute', await newKey(['sandbox_execute']))
    expect(await namesIn(own)).toEqual(['sandbox_execute'])
    await own.close()
  })

  it('passes on the progress of a call, and its errors as results', async () => {
    const upstream = await openUpstream((_request, response, body) => {
      const { method, params } = JSON.parse(body.toString()) as {
        method: string
        params: { name: string; _meta?: { progressToken: unknown } }
      }
      const send = (message: object) =>
        response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\r\n\r\n`)
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      if (method === 'tools/call' && params.name === 'slow') {
        const progressToken = params._meta?.progressToken
        send({ method: 'notifications/progress', params: { progressToken, progress: 1, total: 2, message: 'half' } })
        send({ id: 'ask', method: 'elicitation/create', params: {} })
        send({ id: 1, result: { content: [{ type: 'text', text: 'done' }] } })
      } else send({ id: 1, error: { code: -32602, message: 'no such thing' } })
      response.end()
    })
    opened.push(upstream)
    const listing = {
      tools: [
        { name: 'slow', inputSchema: { type: 'object' } },
        { name: 'bad', inputSchema: { type: 'object' } },
      ],
      prompts: [],
      resources: [],
      server: '',
    }
    await createUpstream(front.core.adminContext, operator, { orgId: org, name: 'acme/raw' }, { url: upstream.url })
    const { id } = (await front.store.upstreams.get(org, 'acme/raw'))!
    await front.store.upstreams.update(id, { listing: JSON.stringify(listing), updatedAt: '2' })
    const client = await connect('/v1/mcp?toolsets=execute')
    const seen: unknown[] = []
    await expect.poll(() => namesIn(client)).toContain('acme_raw__slow')
    const result = await client.callTool({ name: 'acme_raw__slow', arguments: {} }, undefined, {
      onprogress: (progress) => seen.push(progress),
    })
    expect(result.content).toEqual([{ type: 'text', text: 'done' }])
    expect(seen).toMatchObject([{ message: 'half' }])
    expect(await client.callTool({ name: 'acme_raw__bad', arguments: {} })).toMatchObject({
      content: [{ text: 'acme/raw: no such thing (-32602)' }],
      isError: true,
    })
    await expect.poll(() => upstream.received.some(({ body }) => body.includes('"id":"ask","error"'))).toBe(true)
    await client.close()
  })
})

describe('a hostile upstream', () => {
  /** An upstream with one tool that answers a call with `answer`, and everything else with an empty stream. */
  async function upstreamWith(name: string, answer: (send: (message: object) => void, calls: number) => void) {
    let calls = 0
    const upstream = await openUpstream((_request, response, body) => {
      const { method } = JSON.parse(body.toString()) as { method?: string }
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
      if (method !== 'tools/call') return
      answer((message) => response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`), ++calls)
    })
    opened.push(upstream)
    const listing = {
      tools: [{ name: 'tool', inputSchema: { type: 'object' } }],
      prompts: [],
      resources: [],
      server: '',
    }
    await createUpstream(front.core.adminContext, operator, { orgId: org, name }, { url: upstream.url })
    const { id } = (await front.store.upstreams.get(org, name))!
    await front.store.upstreams.update(id, { listing: JSON.stringify(listing), updatedAt: '2' })
    const tool = `${name.replace('/', '_')}__tool`
    const params = { name: 'sandbox_execute', arguments: {} }
    const call = async (): Promise<string> => {
      const body = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { ...params, name: tool } }
      return (await front.post('/v1/mcp', body, { 'x-api-key': secret })).text()
    }
    await expect
      .poll(async () =>
        (await front.post('/v1/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }, { 'x-api-key': secret })).text(),
      )
      .toContain(tool)
    return { upstream, call }
  }

  it('cannot make the gateway send requests without a limit, or hold calls with responses to them', async () => {
    const { upstream, call } = await upstreamWith('hostile/asking', (send, calls) => {
      for (let id = 0; id < (calls === 1 ? 1_000 : 10); id++) send({ id: `ask-${id}`, method: 'roots/list' })
      send({ id: 1, result: { content: [{ type: 'text', text: 'done' }] } })
    })
    expect(await call()).toContain('more than 16 requests')
    expect(upstream.received.filter(({ body }) => body.includes('"ask-'))).toHaveLength(16)
    // Each leaves ten streams that never end; none may count against the 64 calls of this key.
    for (let round = 0; round < 8; round++) expect(await call()).toContain('done')
  })

  it('is called again once it has recovered, although each stream is left when its result has arrived', async () => {
    const { call } = await upstreamWith('hostile/failing', (send, calls) => {
      if (calls % 2 === 1) send({ id: 1, result: { content: [{ type: 'text', text: 'done' }] } })
      else send({ id: 1, neither: true })
    })
    for (let round = 0; round < 7; round++) {
      expect(await call()).toContain('done')
      expect(await call()).toContain('has no result')
    }
  })
})

describe('discovery by search', () => {
  it('offers two tools that find and call all others', async () => {
    const client = await connect('/v1/mcp?toolsets=execute&discovery=search')
    expect(await namesIn(client)).toEqual(['sandbox_execute', 'tool_search', 'tool_call'])
    const found = await client.callTool({ name: 'tool_search', arguments: { query: 'adding numbers', limit: 2 } })
    const [{ text }] = found.content as [{ text: string }]
    const [first] = JSON.parse(text) as { name: string; inputSchema: object }[]
    expect(first?.name).toMatch(/__add$/)
    const name = 'acme_stateless__add'
    const result = await client.callTool({ name: 'tool_call', arguments: { name, arguments: { a: 1, b: 2 } } })
    expect(result.content).toEqual([{ type: 'text', text: '3' }])
    await expect(client.callTool({ name: 'tool_call', arguments: { name: 'nope' } })).rejects.toThrow('nope')
    await client.close()
  })

  it('obeys the limits of a key also through tool_call', async () => {
    const key = await newKey(['acme/stateless#echo'])
    const client = await connect('/v1/mcp?discovery=search', key)
    const call = (name: string) => client.callTool({ name: 'tool_call', arguments: { name, arguments: { text: 'x' } } })
    const found = await client.callTool({ name: 'tool_search', arguments: { query: 'add echo numbers text' } })
    expect(JSON.stringify(found.content).match(/acme_\w+/g)).toEqual(['acme_stateless__echo'])
    expect((await call('acme_stateless__echo')).content).toEqual([{ type: 'text', text: 'x' }])
    await expect(call('acme_stateless__add')).rejects.toThrow('acme_stateless__add')
    await expect(call('sandbox_execute')).rejects.toThrow('sandbox_execute')
    await client.close()
  })

  it('is refused in an unknown form', async () => {
    const ping = { jsonrpc: '2.0', id: 1, method: 'ping' }
    const response = await front.post('/v1/mcp?discovery=all', ping, { 'x-api-key': secret })
    expect(response.status).toBe(400)
  })
})

describe('the name of a tool', () => {
  it('has at most 64 characters that every client accepts, and is unique', () => {
    const none = () => false
    expect(nameOf('exa/exa', 'web_search', none)).toBe('exa_exa__web_search')
    expect(nameOf('io.github.acme/tool', 'a.b c', none)).toBe('io_github_acme_tool__a_b_c')
    const long = nameOf('vendor/name', 'x'.repeat(100), none)
    expect(long).toMatch(/^[A-Za-z0-9_-]{64}$/)
    expect(nameOf('vendor/name', 'x'.repeat(101), none)).not.toBe(long)
    expect(nameOf('a/b', 'c', (name) => name === 'a_b__c')).toMatch(/^a_b__c_[0-9a-f]{8}$/)
  })
})
