import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { conformanceOffers } from '../conformance/inventory.ts'
import { type Front, openFront, testProfile, threadsProfile } from '../support/front.ts'
import { askModern } from '../support/modern.ts'

const fronts: Front[] = []
const open = async (...words: Parameters<typeof openFront>): Promise<Front> => {
  const front = await openFront(...words)
  fronts.push(front)
  return front
}
afterAll(async () => {
  for (const front of fronts) await front.close()
})

let product: Front
let other: Front
let fixture: Front
beforeAll(async () => {
  product = await open()
  other = await open()
  fixture = await open(undefined, {}, conformanceOffers())
})

const lists = ['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list'] as const
const legacy = async (front: Front, method: string, path = '/mcp'): Promise<string> =>
  (await front.post(path, { jsonrpc: '2.0', id: 1, method })).text()
const modern = async (front: Front, method: string) => {
  const { body } = await askModern(front.url, method)
  return body.result
}

describe('a list', () => {
  it('is byte-identical for every call and from every front', async () => {
    for (const method of lists) {
      const first = await legacy(fixture, method)
      expect([method, await legacy(fixture, method)]).toEqual([method, first])
    }
    for (const method of ['tools/list', 'resources/list']) {
      expect(await legacy(other, method)).toBe(await legacy(product, method))
      expect(JSON.stringify(await modern(other, method))).toBe(JSON.stringify(await modern(product, method)))
    }
  })

  it('can be cached by its client for a while, and is private to its key', async () => {
    for (const method of [...lists, 'server/discover'])
      expect([method, await modern(fixture, method)]).toEqual([
        method,
        expect.objectContaining({ resultType: 'complete', cacheScope: 'private', ttlMs: expect.any(Number) }),
      ])
  })

  it('has a fixed order, whatever the order of the selected toolsets', async () => {
    const named = (...names: string[]) => legacy(product, 'tools/list', `/mcp?toolsets=${names.join(',')}`)
    expect(await named('executions', 'execute')).toBe(await named('execute', 'executions', 'execute'))
  })

  it('depends on the profile: without storage there is no tool for downloads', async () => {
    const stored = await open(threadsProfile)
    const download = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'files_download', arguments: {} } }
    expect(await legacy(product, 'tools/list')).not.toContain('files_download')
    expect(await (await product.post('/mcp', download)).text()).toContain('Unknown tool')
    expect(await legacy(stored, 'tools/list')).toContain('files_download')
    expect(await (await stored.post('/mcp', download)).text()).toContain('is required and missing')
  })

  it('contains no toolset that the profile does not allow, whatever the client selects', async () => {
    const narrow = await open({ ...testProfile, calls: { ...testProfile.calls, toolsets: ['execute'] } })
    const all = await legacy(narrow, 'tools/list', '/mcp?toolsets=execute,files,executions')
    expect(all).toBe(await legacy(narrow, 'tools/list'))
    expect(all).not.toContain('execution_')
  })

  it('has self-contained schemas', async () => {
    const stored = await open(threadsProfile)
    const tools = await legacy(stored, 'tools/list', '/mcp?toolsets=execute,files,executions')
    const references = [...tools.matchAll(/"\$(?:ref|dynamicRef|schema|id)":"([^"]*)"/g)].map(([, where]) => where)
    expect(references.filter((where) => !where?.startsWith('#'))).toEqual([])
  })
})
