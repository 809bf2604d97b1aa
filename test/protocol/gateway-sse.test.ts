import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createUpstream, refreshUpstream, type UpstreamSettings } from '../../src/core/admin/upstreams.ts'
import { type Front, openFront } from '../support/front.ts'
import { openSseUpstream, type SseUpstream } from '../support/sse-upstream.ts'
import { openStatefulUpstream, openStatelessUpstream, openUpstream, type TestUpstream } from '../support/upstreams.ts'

let front: Front
let org: string
let secret: string
let old: SseUpstream
const opened: TestUpstream[] = []
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  org = (await createOrg(front.core.adminContext, operator, 'sse')).id
  secret = await newKey(null)
  old = await openSseUpstream()
  const credential = { in: 'header', name: 'X-Token', values: ['old-token'] } as const
  await register('acme/old', old, { transport: 'sse', credential })
  await register('acme/stateful', await openStatefulUpstream())
  await register('acme/stateless', await openStatelessUpstream())
  await register('acme/modern', await openStatelessUpstream(undefined, { modernOnly: true }))
})
afterAll(async () => {
  await front.close()
  for (const upstream of opened) upstream.close()
})

const newKey = async (tools: string[] | null): Promise<string> =>
  (await createKey(front.core.adminContext, operator, org, { tools }, [])).secret

async function register(name: string, upstream: TestUpstream, settings: UpstreamSettings = {}): Promise<void> {
  opened.push(upstream)
  await createUpstream(front.core.adminContext, operator, { orgId: org, name }, { url: upstream.url, ...settings })
}

const requestInit = (key: string) => ({ headers: { authorization: `Bearer ${key}` } })
const transports = {
  sse: (path: string, key: string) =>
    new SSEClientTransport(new URL(front.url + path), { requestInit: requestInit(key) }),
  http: (path: string, key: string) =>
    new StreamableHTTPClientTransport(new URL(front.url + path), { requestInit: requestInit(key) }) as Transport,
}

async function connect(kind: keyof typeof transports, path: string, key = secret): Promise<Client> {
  const client = new Client({ name: 'judge', version: '1' }, { capabilities: { elicitation: {} } })
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept' as const, content: {} }))
  await client.connect(transports[kind](path, key))
  return client
}

const textOf = async (client: Client, name: string, text = 'x', onprogress?: () => void) => {
  const { content } = await client.callTool({ name, arguments: { text } }, undefined, onprogress && { onprogress })
  return (content as { text: string }[])[0]?.text
}

const single = (name: string, path = '/acme/old/sse') =>
  front.post(
    path,
    { jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name, arguments: { text: 'single' } } },
    { authorization: `Bearer ${secret}` },
  )

describe('clients and upstreams of both transports', () => {
  it.each([
    ['sse', 'old'],
    ['http', 'old'],
    ['sse', 'stateful'],
    ['sse', 'stateless'],
    ['sse', 'modern'],
    ['http', 'modern'],
  ] as const)('call tools: %s client, %s upstream', async (kind, name) => {
    const client = await connect(kind, `/acme/${name}/sse`)
    expect((await client.listTools()).tools.map((tool) => tool.name)).toContain('echo')
    const texts = await Promise.all(['a', 'b', 'c'].map((text) => textOf(client, 'echo', text)))
    expect(texts).toEqual(['a', 'b', 'c'])
    await client.close()
  })

  it.each(['sse', 'http'] as const)('pass on progress and questions to the user of an %s client', async (kind) => {
    const client = await connect(kind, '/acme/old/sse')
    let steps = 0
    expect(await textOf(client, 'steps', 'done', () => steps++)).toBe('done')
    expect(steps).toBe(1)
    expect(await textOf(client, 'ask')).toBe('accept')
    await client.close()
  })
})

/** An upstream that sends a text, and another one without an end. */
const openFlood = (first: string, again: string) =>
  openUpstream((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).write(first)
    const more = () => {
      if (!response.destroyed && response.write(again)) setImmediate(more)
    }
    response.on('drain', more)
    more()
  })

/** The names of the tools that a client sees. Changes by administrators take effect within a second. */
const namesOf = async (client: Client) => (await client.listTools()).tools.map(({ name }) => name)

describe('an upstream that only speaks the newest version', () => {
  it('answers single messages and our tools, in its own version', async () => {
    expect(await (await single('echo', '/acme/modern/sse')).text()).toContain('"single"')
    await refreshUpstream(front.core.adminContext, operator, { orgId: org, name: 'acme/modern' })
    const client = await connect('http', '/v1/mcp?toolsets=execute')
    await expect.poll(() => namesOf(client)).toContain('acme_modern__echo')
    expect(await textOf(client, 'acme_modern__echo', 'aggregated')).toBe('aggregated')
    await client.close()
  })

  it('is asked in the older version once, and not with every message', async () => {
    const fresh = await openStatelessUpstream(undefined, { modernOnly: true })
    await register('acme/fresh', fresh)
    for (let index = 0; index < 3; index++) await (await single('echo', '/acme/fresh/sse')).text()
    expect(fresh.received.map(({ headers }) => headers['mcp-method'])).toEqual([
      undefined,
      ...['tools/call', 'tools/call', 'tools/call'],
    ])
  })
})

describe('an upstream with the older transport', () => {
  it('answers single messages without a session, over one stream per key, and is refused questions', async () => {
    const answers = await Promise.all([single('echo'), single('echo'), single('echo')])
    for (const answer of answers) expect(await answer.text()).toContain('"id":7')
    const streams = old.streams
    expect(await (await single('ask')).text()).toContain('refused: ')
    expect(old.streams).toBe(streams)
    expect(old.received.every(({ headers }) => headers['x-token'] === 'old-token')).toBe(true)
    expect(JSON.stringify(old.received)).not.toContain(secret)
  })

  it('is connected to again after it has closed its stream', async () => {
    await (await single('echo')).text()
    old.disconnect()
    await expect.poll(() => old.streams).toBe(0)
    expect(await (await single('echo')).text()).toContain('"single"')
  })

  it('has its tools read, and offers them beside our own', async () => {
    const ref = { orgId: org, name: 'acme/old' }
    expect(await refreshUpstream(front.core.adminContext, operator, ref)).toMatchObject({ tools: 4, transport: 'sse' })
    const client = await connect('http', '/v1/mcp?toolsets=execute')
    await expect.poll(() => namesOf(client)).toContain('acme_old__echo')
    expect(await textOf(client, 'acme_old__echo', 'aggregated')).toBe('aggregated')
    await client.close()
  })

  it('loses its stream when the client ends its session', async () => {
    const before = old.streams
    const transport = transports.http('/acme/old/sse', secret) as StreamableHTTPClientTransport
    const client = new Client({ name: 'judge', version: '1' })
    await client.connect(transport as Transport)
    expect(old.streams).toBe(before + 1)
    await transport.terminateSession()
    await expect.poll(() => old.streams).toBe(before)
    await client.close()
  })

  it('gets no message at an address of another host, and fails visibly where it opens no stream', async () => {
    const lured = await openUpstream(() => {})
    const hostile = await openUpstream((_request, response) =>
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(`event: endpoint\ndata: ${lured.url}\n\n`),
    )
    opened.push(lured)
    await register('hostile/endpoint', hostile, { transport: 'sse' })
    await register('hostile/none', await openUpstream((_request, response) => response.writeHead(404).end()), {
      transport: 'sse',
    })
    const flood = await openFlood(': before any address\n\n', `data: ${'x'.repeat(1 << 20)}\n\n`)
    await register('hostile/flood', flood, { transport: 'sse' })
    const flooded = await single('echo', '/hostile/flood/sse')
    // The stream ended before the time for the address was over.
    expect([flooded.status, await flooded.text()]).toEqual([502, expect.stringContaining('named no address')])
    await expect.poll(() => flood.received.length).toBeGreaterThan(0)
    const answer = await single('echo', '/hostile/endpoint/sse')
    expect([answer.status, await answer.text()]).toEqual([502, expect.stringContaining('its own origin')])
    expect(lured.received).toEqual([])
    expect((await single('echo', '/hostile/none/sse')).status).toBe(404)
  })
})

describe('a client that is configured with an address for SSE', () => {
  const endpointOf = async (headers: Record<string, string> = {}, url = front.url, name = 'stateless') => {
    const abort = new AbortController()
    const response = await fetch(`${url}/acme/${name}/sse`, {
      headers: { ...requestInit(secret).headers, accept: 'text/event-stream', ...headers },
      signal: abort.signal,
    })
    const reader = response.body!.getReader()
    const next = async () => Buffer.from((await reader.read()).value ?? []).toString()
    const [, endpoint = ''] = /^event: endpoint\ndata: (\S+)\n\n$/.exec(await next()) ?? []
    return { endpoint, next, close: () => abort.abort() }
  }

  it('gets an address for messages that works behind a proxy with a path', async () => {
    const proxied = await openFront(undefined, { dev: false, publicUrl: 'https://proxy.example.com/tools/' })
    const orgId = (await createOrg(proxied.core.adminContext, operator, 'proxied')).id
    const key = await createKey(proxied.core.adminContext, operator, orgId, {}, [])
    const ref = { orgId, name: 'acme/stateless' }
    await createUpstream(proxied.core.adminContext, operator, ref, { url: opened.at(0)!.url })
    const { endpoint, close } = await endpointOf({ authorization: `Bearer ${key.secret}` }, proxied.url)
    expect(endpoint).toMatch(/^\/tools\/mcp\/acme\/stateless\/message\?session_id=[\w-]{36}$/)
    close()
    await proxied.close()
  })

  it('has a session that other keys cannot use, and that ends with its stream', async () => {
    const { endpoint, close } = await endpointOf()
    const post = async (key: string) =>
      (await front.post(endpoint, { jsonrpc: '2.0', method: 'ping', id: 1 }, { authorization: `Bearer ${key}` })).status
    expect(await post(secret)).toBe(202)
    expect(await post(await newKey(null))).toBe(404)
    close()
    await expect.poll(() => post(secret)).toBe(404)
  })

  it('has no more messages in progress than it can read the answers of', async () => {
    const silent = await openUpstream(() => {})
    await register('acme/silent', silent)
    const { endpoint, close } = await endpointOf({}, front.url, 'silent')
    const post = async (message: object) =>
      (await front.post(endpoint, message, { authorization: `Bearer ${secret}` })).status
    const call = {
      jsonrpc: '2.0',
      method: 'tools/call',
      params: { name: 'x', arguments: { text: 'x'.repeat(100_000) } },
    }
    const before = front.core.openRequests.usage.bytes
    const statuses = await Promise.all(Array.from({ length: 80 }, (_, id) => post({ ...call, id })))
    expect([statuses.filter((one) => one === 202).length, statuses.filter((one) => one === 429).length]).toEqual([
      64, 16,
    ])
    // What was accepted is still held, and counts for its organization.
    expect(front.core.openRequests.usage.bytes - before).toBeGreaterThan(64 * 100_000)
    expect(await post({ jsonrpc: '2.0', id: 1, method: 'initialize', params: { text: 'x'.repeat(100_000) } })).toBe(429)
    close()
    await expect.poll(() => front.core.openRequests.usage.bytes).toBe(before)
  })

  it('does not have to keep an initialize of any length', async () => {
    const { endpoint, close } = await endpointOf()
    const long = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { text: 'x'.repeat(100_000) } }
    expect((await front.post(endpoint, long, { authorization: `Bearer ${secret}` })).status).toBe(400)
    close()
  })

  it('reads why an upstream failed that sends an event without an end', async () => {
    await register('acme/flood', await openFlood('data: ', 'x'.repeat(1 << 20)))
    const { endpoint, next, close } = await endpointOf({}, front.url, 'flood')
    await front.post(endpoint, { jsonrpc: '2.0', id: 5, method: 'ping' }, { authorization: `Bearer ${secret}` })
    expect(await next()).toContain('an event of more than 8388608 bytes')
    close()
  })

  it('reads why a call is refused', async () => {
    const limited = await connect('sse', '/acme/stateless/sse', await newKey(['acme/stateless#echo']))
    expect(await textOf(limited, 'echo', 'allowed')).toBe('allowed')
    await expect(textOf(limited, 'add')).rejects.toThrow('limited to other tools')
    await limited.close()
  })
})
