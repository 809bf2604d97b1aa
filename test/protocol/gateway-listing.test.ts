import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createUpstream, refreshUpstream } from '../../src/core/admin/upstreams.ts'
import { type Front, openFront } from '../support/front.ts'
import { openUpstream, type TestUpstream } from '../support/upstreams.ts'

let front: Front
let org: string
const opened: TestUpstream[] = []
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  org = (await createOrg(front.core.adminContext, operator, 'listing')).id
})
afterAll(async () => {
  await front.close()
  for (const upstream of opened) upstream.close()
})

/** An upstream of the older generation whose tools come in pages. @param next returns the cursor after a page. */
async function pagedUpstream(name: string, next: (page: number) => string | undefined) {
  const upstream = await openUpstream((_request, response, body) => {
    const { id, method, params } = JSON.parse(body.toString() || '{}') as {
      id?: number
      method?: string
      params?: { cursor?: string }
    }
    const page = Number(params?.cursor ?? 0)
    const nextCursor = next(page)
    const answers: Record<string, object> = {
      initialize: {
        protocolVersion: '2025-11-25',
        capabilities: { tools: {} },
        serverInfo: { name: 'p', version: '1' },
      },
      'tools/list': {
        tools: [{ name: `tool-${page}`, inputSchema: { type: 'object' } }],
        ...(nextCursor !== undefined && { nextCursor }),
      },
    }
    const result = answers[method ?? '']
    const answer = result ? { result } : { error: { code: -32601, message: 'Method not found' } }
    if (id === undefined) response.writeHead(202).end()
    else {
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }))
    }
  })
  opened.push(upstream)
  const ref = { orgId: org, name }
  await createUpstream(front.core.adminContext, operator, ref, { url: upstream.url })
  return { upstream, refresh: () => refreshUpstream(front.core.adminContext, operator, ref) }
}

const pagesOf = ({ received }: TestUpstream): number =>
  received.filter(({ body }) => body.includes('"tools/list"')).length

describe('the tools of an upstream', () => {
  it('are read from all pages', async () => {
    const { refresh } = await pagedUpstream('pages/three', (page) => (page < 2 ? String(page + 1) : undefined))
    expect(await refresh()).toMatchObject({ tools: 3 })
  })

  it('are read up to a cursor that repeats', async () => {
    const { upstream, refresh } = await pagedUpstream('pages/repeated', () => '1')
    expect(await refresh()).toMatchObject({ tools: 2 })
    expect(pagesOf(upstream)).toBeLessThan(5)
  })

  it('are refused where the pages have no end, after a bounded number of requests', async () => {
    const { upstream, refresh } = await pagedUpstream('pages/endless', (page) => String(page + 1))
    await expect(refresh()).rejects.toThrow('The upstream server pages/endless failed')
    expect(pagesOf(upstream)).toBe(64)
  })
})
