import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createUpstream, type UpstreamSettings } from '../../src/core/admin/upstreams.ts'
import { type Front, openFront } from '../support/front.ts'
import { openUpstream, type TestUpstream } from '../support/upstreams.ts'

let front: Front
let org: string
const opened: TestUpstream[] = []
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  org = (await createOrg(front.core.adminContext, operator, 'sessions')).id
})
afterAll(async () => {
  await front.close()
  for (const upstream of opened) upstream.close()
})

const newKey = async (): Promise<string> => (await createKey(front.core.adminContext, operator, org, {}, [])).secret

let names = 0
async function register(upstream: TestUpstream, settings: UpstreamSettings = {}): Promise<string> {
  opened.push(upstream)
  const name = `sessions/n${++names}`
  await createUpstream(front.core.adminContext, operator, { orgId: org, name }, { url: upstream.url, ...settings })
  return `/${name}/sse`
}

const call = (path: string, key: string) =>
  front.post(
    path,
    { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'count', arguments: {} } },
    { authorization: `Bearer ${key}` },
  )

/** An upstream that requires a session and counts calls in it. It can forget its sessions. */
async function countingUpstream(forgetsAtOnce = false) {
  const counts = new Map<string, number>()
  let executed = 0
  const upstream = await openUpstream((request, response, body) => {
    const { id, method } = JSON.parse(body.toString() || '{}') as { id?: number; method?: string }
    const answer = (status: number, message: object, headers: Record<string, string> = {}) =>
      response
        .writeHead(status, { 'content-type': 'application/json', ...headers })
        .end(JSON.stringify({ jsonrpc: '2.0', id, ...message }))
    const session = String(request.headers['mcp-session-id'])
    if (method === 'initialize') {
      const created = `session-${counts.size}-${executed}`
      if (!forgetsAtOnce) counts.set(created, 0)
      const result = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 'c', version: '1' } }
      return answer(200, { result }, { 'mcp-session-id': created })
    }
    const count = counts.get(session)
    if (count === undefined) return answer(404, { error: { code: -32001, message: 'Session not found' } })
    if (id === undefined) return response.writeHead(202).end()
    counts.set(session, count + 1)
    executed++
    return answer(200, { result: { content: [{ type: 'text', text: `call ${count + 1}` }] } })
  })
  const initializations = () => upstream.received.filter(({ body }) => body.includes('"initialize"')).length
  return { upstream, initializations, forget: () => counts.clear(), executed: () => executed }
}

describe('a session that the gateway opens with an upstream', () => {
  it('is used for all calls of a key, so that only the first call waits for it', async () => {
    const { upstream, initializations } = await countingUpstream()
    const path = await register(upstream)
    const key = await newKey()
    for (const expected of ['call 1', 'call 2', 'call 3'])
      expect(await (await call(path, key)).text()).toContain(expected)
    expect(initializations()).toBe(1)
  })

  it('is never shared by two keys', async () => {
    const { upstream } = await countingUpstream()
    const path = await register(upstream)
    const [mine, other] = [await newKey(), await newKey()]
    expect(await (await call(path, mine)).text()).toContain('call 1')
    expect(await (await call(path, other)).text()).toContain('call 1')
    expect(await (await call(path, mine)).text()).toContain('call 2')
  })

  it('is opened again once the upstream has forgotten it, and the call is executed once', async () => {
    const { upstream, initializations, forget, executed } = await countingUpstream()
    const path = await register(upstream)
    const key = await newKey()
    await (await call(path, key)).text()
    forget()
    expect(await (await call(path, key)).text()).toContain('call 1')
    expect([initializations(), executed()]).toEqual([2, 2])
  })

  it('is given up where the upstream forgets every session at once, with its error', async () => {
    const { upstream, initializations, executed } = await countingUpstream(true)
    const response = await call(await register(upstream), await newKey())
    expect([response.status, await response.text()]).toEqual([404, expect.stringContaining('Session not found')])
    expect([initializations(), executed()]).toEqual([1, 0])
  })
})

describe('an upstream that never answers', () => {
  it('is not called for a while after five timeouts in a row', async () => {
    const silent = await openUpstream(() => {})
    const path = await register(silent, { timeout_ms: 1_000 })
    const key = await newKey()
    const answers = await Promise.all(Array.from({ length: 5 }, () => call(path, key)))
    expect(answers.map(({ status }) => status)).toEqual([504, 504, 504, 504, 504])
    const refused = await call(path, key)
    expect([refused.status, Number(refused.headers.get('retry-after')) > 0]).toEqual([502, true])
    expect(silent.received).toHaveLength(5)
  })
})
