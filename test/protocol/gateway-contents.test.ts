import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createUpstream, refreshUpstream } from '../../src/core/admin/upstreams.ts'
import { type Front, openFront, testProfile } from '../support/front.ts'
import { openUpstream, type TestUpstream } from '../support/upstreams.ts'

/** The results of an upstream with one prompt, one resource and one template. */
const results: Record<string, (params: Record<string, never>) => object> = {
  initialize: () => ({
    ...{ protocolVersion: '2025-11-25', serverInfo: { name: 'contents', version: '1' } },
    capabilities: { tools: {}, prompts: {}, resources: {}, completions: {} },
  }),
  'tools/list': () => ({ tools: [{ name: 'noop', inputSchema: { type: 'object' } }] }),
  'prompts/list': () => ({ prompts: [{ name: 'review', arguments: [{ name: 'language', required: true }] }] }),
  'resources/list': () => ({ resources: [{ uri: 'file:///readme.md', name: 'readme', mimeType: 'text/markdown' }] }),
  'resources/templates/list': () => ({ resourceTemplates: [{ uriTemplate: 'file:///{path}', name: 'files' }] }),
  'prompts/get': ({ arguments: given }) => ({
    messages: [
      {
        role: 'user',
        content: { type: 'text', text: `Review this ${(given as unknown as { language: string }).language}.` },
      },
    ],
  }),
  'resources/read': ({ uri }) => ({ contents: [{ uri, mimeType: 'text/plain', text: `content of ${uri}` }] }),
  'completion/complete': (params) => ({ completion: { values: [JSON.stringify(params)], total: 1, hasMore: false } }),
}

let front: Front
let org: string
let upstream: TestUpstream
beforeAll(async () => {
  const profile = { ...testProfile, calls: { ...testProfile.calls, upstreamsInMcp: true } }
  front = await openFront(profile, { dev: false })
  org = (await createOrg(front.core.adminContext, operator, 'contents')).id
  upstream = await openUpstream((_request, response, body) => {
    const { id, method, params } = JSON.parse(body.toString() || '{}') as { id?: number; method: string; params: never }
    const result = results[method]?.(params)
    const answer = result ? { result } : { error: { code: -32601, message: 'Method not found' } }
    if (id === undefined) response.writeHead(202).end()
    else {
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }))
    }
  })
  for (const name of ['acme/docs', 'acme/other']) {
    const ref = { orgId: org, name }
    await createUpstream(front.core.adminContext, operator, ref, { url: upstream.url })
    await refreshUpstream(front.core.adminContext, operator, ref)
  }
})
afterAll(async () => {
  await front.close()
  upstream.close()
})

async function connect(path: string, tools: string[] | null = null): Promise<Client> {
  const { secret } = await createKey(front.core.adminContext, operator, org, { tools }, [])
  const client = new Client({ name: 'judge', version: '1' })
  const transport = new StreamableHTTPClientTransport(new URL(front.url + path), {
    requestInit: { headers: { authorization: `Bearer ${secret}` } },
  })
  await client.connect(transport as Transport)
  return client
}

describe.each(['/v1/mcp', '/mcp'])('%s', (path) => {
  it('lists prompts and gets them from their upstream', async () => {
    const client = await connect(path)
    expect((await client.listPrompts()).prompts.map(({ name }) => name)).toEqual([
      'acme_docs__review',
      'acme_other__review',
    ])
    const { messages } = await client.getPrompt({ name: 'acme_docs__review', arguments: { language: 'C' } })
    expect(messages).toEqual([{ role: 'user', content: { type: 'text', text: 'Review this C.' } }])
    await expect(client.getPrompt({ name: 'acme_docs__review', arguments: {} })).rejects.toThrow('required')
    await client.close()
  })

  it('lists resources beside our own, and reads them and what templates name', async () => {
    const client = await connect(path)
    const uris = (await client.listResources()).resources.map(({ uri }) => uri)
    expect(uris).toContain('upstream://acme/docs/file:///readme.md')
    expect(uris.some((uri) => !uri.startsWith('upstream:'))).toBe(true)
    const uri = 'upstream://acme/other/file:///a/b.txt'
    const { contents } = await client.readResource({ uri })
    expect(contents).toEqual([{ uri, mimeType: 'text/plain', text: 'content of file:///a/b.txt' }])
    const templates = (await client.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate)
    expect(templates).toContain('upstream://acme/docs/file:///{path}')
    await expect(client.readResource({ uri: 'upstream://acme/none/x' })).rejects.toThrow()
    await client.close()
  })
})

describe('completions', () => {
  it('come from the upstream, for prompts and templates under its own names', async () => {
    const client = await connect('/v1/mcp')
    const completed = async (ref: Parameters<Client['complete']>[0]['ref'], name: string) =>
      JSON.parse((await client.complete({ ref, argument: { name, value: 'p' } })).completion.values[0] ?? '')
    expect(await completed({ type: 'ref/prompt', name: 'acme_docs__review' }, 'language')).toEqual({
      ...{ ref: { type: 'ref/prompt', name: 'review' }, argument: { name: 'language', value: 'p' } },
    })
    const template = 'upstream://acme/docs/file:///{path}'
    expect(await completed({ type: 'ref/resource', uri: template }, 'path')).toEqual({
      ...{ ref: { type: 'ref/resource', uri: 'file:///{path}' }, argument: { name: 'path', value: 'p' } },
    })
    await client.close()
  })
})

describe('a key that is limited to tools of an upstream', () => {
  it('neither lists nor reads its prompts and resources', async () => {
    const client = await connect('/v1/mcp', ['acme/docs#noop', 'acme/other'])
    expect((await client.listPrompts()).prompts.map(({ name }) => name)).toEqual(['acme_other__review'])
    await expect(client.getPrompt({ name: 'acme_docs__review', arguments: { language: 'C' } })).rejects.toThrow()
    await expect(client.readResource({ uri: 'upstream://acme/docs/file:///readme.md' })).rejects.toThrow()
    await client.close()
  })
})
