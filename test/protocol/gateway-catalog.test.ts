import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createToken } from '../../src/core/admin/tokens.ts'
import { createUpstream } from '../../src/core/admin/upstreams.ts'
import { codexToml, mcpClientNames } from '../../src/gateway/client-config.ts'
import { importServers } from '../../src/gateway/import.ts'
import { type Front, openFront } from '../support/front.ts'
import { openStatelessUpstream, type TestUpstream } from '../support/upstreams.ts'

let front: Front
let upstream: TestUpstream
let org: string
let token: string
let secret: string
beforeAll(async () => {
  front = await openFront(undefined, { dev: false, publicUrl: 'https://glovebox.example/base/' })
  upstream = await openStatelessUpstream()
  org = (await createOrg(front.core.adminContext, operator, 'catalog')).id
  token = (await createToken(front.core.adminContext, operator, { name: 'a', role: 'admin', org_id: org })).secret
  secret = (await createKey(front.core.adminContext, operator, org, {}, [])).secret
  for (const name of ['exa/exa', 'exa/second', 'acme/third']) {
    await admin('POST', '', {
      ...{ name, url: upstream.url, display_name: `Server ${name}`, description: 'Web search' },
      ...{ capability_tags: ['search'] },
      credential: { in: 'header', name: 'X-Api-Key', values: ['sealed-value-123456'] },
    })
  }
  await admin('POST', '/exa/exa/refresh')
})
afterAll(async () => {
  await front.close()
  upstream.close()
})

type Body = Record<string, unknown> & { data: Record<string, unknown> }

async function admin(method: string, path: string, body?: object): Promise<{ status: number; body: Body }> {
  const response = await fetch(`${front.url}/admin/v1/orgs/${org}/upstreams${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, ...(method !== 'GET' && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  return { status: response.status, body: text === '' ? ({} as Body) : (JSON.parse(text) as Body) }
}

const get = (path: string, key = secret): Promise<Response> =>
  fetch(front.url + path, { headers: { authorization: `Bearer ${key}` } })

const read = async (path: string, key = secret): Promise<Body> => (await (await get(path, key)).json()) as Body

describe('the list of servers', () => {
  it.each(['/v1/mcp/servers', '/api/mcp/servers'])('is at %s, in pages and without addresses', async (path) => {
    const body = await read(`${path}?page=2&pageSize=2`)
    expect(body).toEqual({
      code: 0,
      data: {
        data: [
          {
            ...{ name: 'exa/second', display_name: 'Server exa/second', description: 'Web search', vendor: 'exa' },
            ...{ capability_tags: ['search'], enabled: true },
          },
        ],
        ...{ total: 3, page: 2, page_size: 2 },
      },
    })
    expect(JSON.stringify(await read(path))).not.toContain('127.0.0.1')
  })

  it('uses the defaults instead of odd page numbers, and searches names and tools', async () => {
    expect(await read('/v1/mcp/servers?page=0&pageSize=1000')).toMatchObject({ data: { page: 1, page_size: 20 } })
    expect(await read('/v1/mcp/servers?q=returns%20ECHO')).toMatchObject({ data: { total: 1 } })
    expect(await read('/v1/mcp/servers?q=web%20thi')).toMatchObject({ data: { data: [{ name: 'acme/third' }] } })
    expect(await read('/v1/mcp/servers?q=nothing')).toMatchObject({ data: { total: 0, data: [] } })
  })

  it.each(['"', '***', 'NEAR(', 'a AND', '%00echo', '%F0%9F%92%A9', `echo${'+x'.repeat(5_000)}`])(
    'is searched for words, whatever else a query contains: %.20s',
    async (query) => {
      const { status } = await get(`/v1/mcp/servers?q=${query}`)
      expect(status).toBe(200)
    },
  )

  it('shows a limited key only what it may call', async () => {
    const { secret: limited } = await createKey(front.core.adminContext, operator, org, { tools: ['exa/exa#add'] }, [])
    expect(await read('/v1/mcp/servers', limited)).toMatchObject({ data: { total: 1 } })
    expect(await read('/v1/mcp/servers?q=add', limited)).toMatchObject({ data: { total: 1 } })
    // Neither by words of a tool nor of a server that it may not use.
    expect(await read('/v1/mcp/servers?q=returns%20its%20text', limited)).toMatchObject({ data: { total: 0 } })
    expect(await read('/v1/mcp/servers?q=third', limited)).toMatchObject({ data: { total: 0 } })
    const { data } = await read('/v1/mcp/exa/exa/tools', limited)
    expect(data.tools).toMatchObject([{ name: 'add' }])
  })
})

describe('the tools of a server', () => {
  it.each([
    '/api/mcp/exa/exa/tools',
    '/api/mcp/exa%2Fexa/tools',
    '/api/mcp/tools?name=exa/exa',
    '/v1/mcp/exa/exa/tools',
    '/v1/mcp/tools?name=exa%2Fexa',
  ])('are at %s', async (path) => {
    expect(await read(path)).toMatchObject({
      ...{ code: 0, message: 'ok' },
      data: { tools: [{ name: 'echo', inputSchema: { type: 'object' } }, { name: 'add' }], prompts: [], resources: [] },
    })
  })

  it('are refused without a name, for an unknown server, and before they were read', async () => {
    const refused = async (path: string) => [(await get(path)).status, (await read(path)).error]
    expect(await refused('/api/mcp/tools')).toEqual([400, 'invalid_request'])
    expect(await refused('/api/mcp/tools?name=no/server')).toEqual([404, 'not_found'])
    expect(await refused('/api/mcp/acme/third/tools')).toEqual([502, 'upstream_error'])
  })
})

describe('the configuration of a client', () => {
  it.each(mcpClientNames)('has the address and the key, for %s', async (client) => {
    const text = await (await get(`/v1/mcp/exa/exa/config?client=${client}`)).text()
    expect(text).toContain('https://glovebox.example/base/exa/exa/sse')
    expect(text).toContain(secret)
    const response = await get(`/v1/mcp/exa%2Fexa/config?client=${client}`)
    expect(response.headers.get('cache-control')).toBe('no-store')
    expect(await response.text()).toBe(text)
  })

  it('is the text of its file for Codex, on request', async () => {
    const url = 'https://glovebox.example/base/exa/exa/sse'
    expect(await (await get('/v1/mcp/exa/exa/config?client=codex&format=toml')).text()).toBe(
      codexToml({ name: 'exa', url, key: secret }),
    )
  })

  it('is refused for an unknown client', async () => {
    expect((await get('/v1/mcp/exa/exa/config?client=netscape')).status).toBe(400)
    expect((await get('/v1/mcp/no/server/config')).status).toBe(404)
  })
})

describe('the usage of upstreams', () => {
  it('is added up by server, tool, key and day', async () => {
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'echo', arguments: { text: 'x' } } }
    for (let index = 0; index < 2; index++) {
      await (await front.post('/exa/exa/sse', call, { 'x-api-key': secret })).text()
    }
    await (await front.post('/exa/second/sse', { ...call, method: 'tools/list' }, { 'x-api-key': secret })).text()
    expect(await read('/v1/mcp/usage')).toMatchObject({
      data: {
        total: 3,
        items: [
          { server: 'exa/exa', calls: 2, failures: 0 },
          { server: 'exa/second', calls: 1 },
        ],
      },
    })
    expect(await read('/v1/mcp/usage?group_by=tool')).toMatchObject({
      data: {
        items: [
          { server: 'exa/exa', tool: 'echo', calls: 2 },
          { server: 'exa/second', tool: '' },
        ],
      },
    })
    // The name of a tool is a row of the database: only approved ones are counted by name.
    await (await front.post('/exa/exa/sse', { ...call, params: { name: 'made-up' } }, { 'x-api-key': secret })).text()
    expect(JSON.stringify(await read('/v1/mcp/usage?group_by=tool'))).not.toContain('made-up')
    const { secret: limited } = await createKey(front.core.adminContext, operator, org, { tools: ['exa/exa'] }, [])
    expect(await read('/v1/mcp/usage', limited)).toMatchObject({ data: { total: 0, items: [] } })
    expect((await get('/v1/mcp/usage?group_by=week')).status).toBe(400)
    expect((await get('/v1/mcp/usage?start=2026-02-30')).status).toBe(400)
  })

  it('is complete after the server has stopped, also for the last calls', async () => {
    const stopping = await openFront(undefined, { dev: false })
    const { adminContext } = stopping.core
    const orgId = (await createOrg(adminContext, operator, 'stopping')).id
    const key = (await createKey(adminContext, operator, orgId, {}, [])).secret
    await createUpstream(adminContext, operator, { orgId, name: 'acme/last' }, { url: upstream.url })
    const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'add', arguments: { a: 1, b: 2 } } }
    const send = () => stopping.post('/acme/last/sse', message, { authorization: `Bearer ${key}` })
    await Promise.all(Array.from({ length: 20 }, async () => (await send()).text()))
    await stopping.core.close('shutdown', 5_000)
    const rows = await stopping.store.upstreamUsage.list(orgId, '2000-01-01', '9999-01-01')
    expect(rows).toMatchObject([{ upstream: 'acme/last', calls: 20, failures: 0 }])
    await stopping.close()
  })

  it('is exported with labels that no client can choose', async () => {
    const unlisted = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'chosen-by-client', arguments: {} },
    }
    await (await front.post('/exa/exa/sse', unlisted, { 'x-api-key': secret })).text()
    const text = await front.metrics.text(undefined)
    expect(text).toMatch(/glovebox_upstream_calls_total\{server="exa\/exa",outcome="(?:succeeded|failed)"\} [1-9]/)
    expect(text).toMatch(/glovebox_upstream_call_seconds_total\{server="exa\/exa"\} 0\.\d/)
    expect(text).not.toContain('chosen-by-client')
  })
})

describe('the administration of upstreams', () => {
  it('shows no secret, in any answer or row of the audit log', async () => {
    const shown = JSON.stringify([await admin('GET', ''), await admin('GET', '/exa/exa'), front.lines])
    expect(shown).toContain('…3456')
    expect(shown).not.toContain('sealed-value')
    const lines = await front.store.audit.list({ orgId: org }, 0, 100)
    expect(JSON.stringify(lines)).toContain('upstream.create')
    expect(JSON.stringify(lines)).not.toContain('sealed-value')
  })

  it.each([
    ['a name without a vendor', { name: 'exa' }],
    ['a vendor that is a path of this server', { name: 'v1/mcp' }],
    ['an address that is not public', { url: 'http://169.254.169.254/' }],
    ['an address with a password', { url: 'https://a:b@example.com/' }],
    ['a header that belongs to the connection', { headers: { Host: 'x' } }],
    ['a header with a line break', { headers: { 'X-A': 'a\r\nb: c' } }],
    ['a credential in an unknown place', { credential: { in: 'cookie', name: 'a', values: [] } }],
    ['a credential outside of the parameters', { credential: { in: 'body', name: '__proto__.a', values: ['x'] } }],
    ['a timeout of an hour and more', { timeout_ms: 4_000_000 }],
    ['an unknown field', { command: 'sh' }],
  ])('refuses %s', async (_, settings) => {
    const { status } = await admin('POST', '', { name: 'bad/upstream', url: 'https://mcp.example.com/', ...settings })
    expect(status).toBe(400)
  })

  it('lists, changes, tests and removes an upstream', async () => {
    expect((await admin('POST', '', { name: 'exa/exa', url: upstream.url })).status).toBe(409)
    expect(await admin('POST', '/exa/exa/test')).toMatchObject({ status: 200, body: { server: 'v2 2' } })
    expect(await admin('PATCH', '/exa/second', { enabled: false, credential: null })).toMatchObject({
      body: { enabled: false, credential: null },
    })
    expect(await admin('GET', '/exa/exa/changes')).toMatchObject({ body: { data: [] } })
    expect(await admin('POST', '/exa/exa/approve')).toMatchObject({ body: { changed_tools: [] } })
    expect((await admin('DELETE', '/exa/second')).status).toBe(204)
    expect((await admin('GET', '/exa/second')).status).toBe(404)
  })

  it('is closed to administrators of other organizations', async () => {
    const other = (await createOrg(front.core.adminContext, operator, 'elsewhere')).id
    const { secret: foreign } = await createToken(front.core.adminContext, operator, {
      ...{ name: 'b', role: 'owner', org_id: other },
    })
    const response = await fetch(`${front.url}/admin/v1/orgs/${org}/upstreams`, {
      headers: { authorization: `Bearer ${foreign}` },
    })
    expect(response.status).toBe(404)
  })
})

describe('an import', () => {
  it('reads the files of clients and of the registry, and says what it skips', () => {
    const file = {
      mcpServers: {
        Exa: { url: 'https://mcp.exa.ai/mcp', headers: { 'x-api-key': 'k' } },
        files: { command: 'npx', args: ['server'] },
        old: { type: 'sse', url: 'https://example.com/sse' },
        'a/b': { httpUrl: 'https://example.com/mcp', headers: { Authorization: ['Bearer $', '{TOKEN}'].join('') } },
      },
    }
    expect(importServers(file, 'team')).toEqual({
      servers: [
        { name: 'team/exa', transport: 'http', url: 'https://mcp.exa.ai/mcp', headers: { 'x-api-key': 'k' } },
        { name: 'team/files', transport: 'stdio', program: { command: 'npx', args: ['server'] }, env: {} },
        { name: 'team/old', transport: 'sse', url: 'https://example.com/sse', headers: {} },
      ],
      skipped: [{ name: 'a/b', reason: 'the value of its header Authorization is a placeholder' }],
    })
    const remote = { type: 'streamable-http', url: 'https://example.com/mcp', headers: [{ name: 'X-A', value: '1' }] }
    expect(importServers({ name: 'io.github.acme/tool', description: 'd', remotes: [remote] }, 'x').servers).toEqual([
      {
        ...{ name: 'io.github.acme/tool', transport: 'http', url: 'https://example.com/mcp', description: 'd' },
        headers: { 'X-A': '1' },
      },
    ])
    expect(() => importServers({ other: 1 }, 'x')).toThrow('has no servers')
  })
})
