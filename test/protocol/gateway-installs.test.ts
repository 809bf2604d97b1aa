import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { timestamp } from '../../src/base/clock.ts'
import { newSandboxId } from '../../src/base/ids.ts'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createToken } from '../../src/core/admin/tokens.ts'
import { createUpstream, updateUpstream } from '../../src/core/admin/upstreams.ts'
import { UpstreamPrograms } from '../../src/core/upstreams/programs/programs.ts'
import { toProgramTarget } from '../../src/core/upstreams/programs/sandbox-spec.ts'
import { coreSettings, type Front, openFront } from '../support/front.ts'
import { sendModern } from '../support/modern.ts'
import { plainServer } from '../support/stdio-upstream.ts'

let front: Front
let org: string
let secret: string
const directory = mkdtempSync(join(tmpdir(), 'glovebox-installs-'))
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  org = (await createOrg(front.core.adminContext, operator, 'installs')).id
  secret = (await createKey(front.core.adminContext, operator, org, { tools: null }, [])).secret
})
afterAll(async () => {
  await front.close()
  rmSync(directory, { recursive: true })
})

describe('a program that must be installed', () => {
  /** An installation that ends when the test says so. */
  const installed = async (name: string, code = 0, before = 'true') => {
    const released = join(directory, name.replace('/', '-'))
    const script = `${before}; until [ -e ${released} ]; do sleep 0.05; done; echo pip: no such package >&2; exit ${code}`
    const program = { ...plainServer(), install: ['sh', '-c', script] }
    await createUpstream(front.core.adminContext, operator, { orgId: org, name }, { program })
    return () => writeFileSync(released, '')
  }
  const authorization = () => ({ authorization: `Bearer ${secret}` })
  const modern = (name: string, method: string, params = {}) =>
    sendModern(front.url, method, params, { path: `/${name}/sse`, headers: authorization() })
  const legacy = (name: string, method: string, params = {}) =>
    front.post(`/${name}/sse`, { jsonrpc: '2.0', id: 1, method, params }, authorization())
  const initialize = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'judge', version: '1' } }

  it('keeps clients of every version waiting with comments, and then answers them', async () => {
    const release = await installed('acme/installed')
    const waiting = await Promise.all([
      modern('acme/installed', 'server/discover'),
      modern('acme/installed', 'tools/call', { name: 'echo', arguments: { text: 'newer' } }),
      legacy('acme/installed', 'initialize', initialize),
      legacy('acme/installed', 'tools/call', { name: 'echo', arguments: { text: 'older' } }),
    ])
    // Each has begun although nothing is installed.
    const texts = waiting.map(async (response) => {
      const decoder = new TextDecoder()
      let text = ''
      for await (const piece of response.body!) {
        if (text === '') expect(decoder.decode(piece)).toMatch(/^: the upstream is being installed/)
        text += decoder.decode(piece, { stream: true })
      }
      return text
    })
    release()
    const [discovered, newer, first, older] = await Promise.all(texts)
    expect(discovered).toContain('"resultType":"complete"')
    expect(newer).toContain('newer')
    expect(first).toContain('"serverInfo":{"name":"plain"')
    expect(waiting[2]!.headers.get('mcp-session-id')).toBeTruthy()
    expect(older).toContain('older')
    // Once.
    expect((await modern('acme/installed', 'server/discover').then((next) => next.text())).startsWith(':')).toBe(false)
  })

  it('says why it cannot be installed, to the clients that wait', async () => {
    const release = await installed('acme/uninstallable', 1)
    const discovering = await modern('acme/uninstallable', 'server/discover')
    const calling = await legacy('acme/uninstallable', 'tools/call', { name: 'echo' })
    release()
    for (const response of [discovering, calling]) {
      expect(await response.text()).toMatch(
        /could not be installed: sh -c .* exited with code 1; it wrote: pip: no such/,
      )
    }
  })

  it.each([
    ['Streamable HTTP', 'http', StreamableHTTPClientTransport],
    ['HTTP+SSE', 'sse', SSEClientTransport],
  ] as const)('is waited for by the official client with %s', async (_, name, ClientTransport) => {
    const release = await installed(`acme/${name}`)
    const client = new Client({ name: 'judge', version: '1' })
    const requestInit = { headers: authorization() }
    const connecting = client.connect(
      new ClientTransport(new URL(`${front.url}/acme/${name}/sse`), { requestInit }) as Transport,
    )
    const { id } = (await front.store.upstreams.get(org, `acme/${name}`))!
    await expect.poll(async () => front.store.upstreamSandboxes.get(id, '')).toBeDefined()
    release()
    await connecting
    const result = await client.callTool({ name: 'echo', arguments: { text: 'waited' } })
    expect(JSON.stringify(result.content)).toContain('waited')
    await client.close()
  })

  it('is waited for by calls through the aggregated endpoint', async () => {
    const release = await installed('acme/aggregated')
    const listing = { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] }
    const { id } = (await front.store.upstreams.get(org, 'acme/aggregated'))!
    await front.store.upstreams.update(id, { listing: JSON.stringify(listing), updatedAt: timestamp() })
    const all = (method: string, params: object) =>
      front.post('/v1/mcp', { jsonrpc: '2.0', id: 1, method, params }, authorization())
    const name = 'acme_aggregated__echo'
    await expect.poll(async () => (await all('tools/list', {})).text()).toContain(name)
    const answering = all('tools/call', { name, arguments: { text: 'all' } })
    await expect.poll(async () => front.store.upstreamSandboxes.get(id, '')).toBeDefined()
    release()
    expect(await (await answering).text()).toContain('all')
  })

  it('is installed once by processes that need it at the same moment, while the others wait', async () => {
    const log = join(directory, 'installs')
    const script = `echo begin >> ${log}; sleep 0.5; echo end >> ${log}`
    const program = { ...plainServer(), install: ['sh', '-c', script] }
    await createUpstream(front.core.adminContext, operator, { orgId: org, name: 'acme/both' }, { program })
    const caller = await front.core.authenticate(secret)
    const target = toProgramTarget(await front.core.upstreams.target(caller, 'acme/both'))
    // As commands beside the server have it.
    const others = [1, 2].map(
      () =>
        new UpstreamPrograms({
          ...{ store: front.store, runner: front.runner.sandboxes, ...coreSettings.upstreamPrograms },
          mayStop: async () => false,
        }),
    )
    const started = await Promise.all([front.core.upstreamPrograms, ...others].map((each) => each.start(target)))
    expect(readFileSync(log, 'utf8')).toBe('begin\nend\n')
    for (const process of started) {
      expect(process.ending).toBeUndefined()
      await process.kill()
    }
    for (const each of others) await each.close()
  })

  it('is installed by another process when the one that did has died', async () => {
    const { upstreamSandboxes } = front.store
    const release = await installed('acme/taken')
    release()
    const { id } = (await front.store.upstreams.get(org, 'acme/taken'))!
    const row = { id: newSandboxId(), orgId: org, upstreamId: id, keyId: '', quotaBytes: 2 ** 30, installed: null }
    await upstreamSandboxes.create({ ...row, createdAt: timestamp() })
    const until = (ms: number) => new Date(Date.now() + ms).toISOString()
    await upstreamSandboxes.beginInstalling(row.id, 'dead', timestamp(), until(600_000))
    expect(await upstreamSandboxes.beginInstalling(row.id, 'other', timestamp(), until(600_000))).toBe(false)
    const calling = await legacy('acme/taken', 'tools/call', { name: 'echo', arguments: { text: 'installed' } })
    expect((await upstreamSandboxes.byId(row.id))?.installer).toBe('dead')
    await upstreamSandboxes.beginInstalling(row.id, 'dead', timestamp(), until(-1))
    expect(await calling.text()).toContain('installed')
  })

  describe('through the admin API', () => {
    // Few programs of one organization run at once.
    beforeAll(async () => {
      org = (await createOrg(front.core.adminContext, operator, 'polled')).id
    })
    const request = async (method: string, path: string, body?: object) => {
      token ??= (await createToken(front.core.adminContext, operator, { role: 'admin', name: 'judge' })).secret
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
      const response = await fetch(`${front.url}/admin/v1${path}`, {
        ...{ method, headers, ...(body && { body: JSON.stringify(body) }) },
      })
      return { status: response.status, body: (await response.json()) as Record<string, unknown> }
    }
    const admin = (method: string, name: string, action = '') =>
      request(method, `/orgs/${org}/upstreams/${name}${action}`)
    let token: string | undefined

    it('is answered with 202, and shows the last line of its installer until its tools were read', async () => {
      const release = await installed('acme/polled', 0, 'echo fetching 1 of 2; echo fetching 2 of 2')
      const installing = { state: 'installing', started_at: expect.any(String), problem: null }
      for (const action of ['/test', '/refresh']) {
        const { status, body } = await admin('POST', 'acme/polled', action)
        expect([status, body]).toEqual([202, expect.objectContaining({ tools: null, installation: expect.anything() })])
        expect(body.installation).toMatchObject(installing)
      }
      const installation = async () => (await admin('GET', 'acme/polled')).body.installation
      await expect
        .poll(installation, { timeout: 10_000 })
        .toMatchObject({ ...installing, last_line: 'fetching 2 of 2' })
      release()
      await expect.poll(installation, { timeout: 10_000 }).toBeNull()
      expect(await admin('POST', 'acme/polled', '/test')).toMatchObject({ status: 200, body: { server: 'plain 1' } })
      expect(await admin('POST', 'acme/polled', '/refresh')).toMatchObject({ status: 200 })
    })

    it('is declared without waiting for its installation, and the answer says so', async () => {
      const released = join(directory, 'declared')
      const install = ['sh', '-c', `echo fetching; until [ -e ${released} ]; do sleep 0.05; done`]
      const declared = { transport: 'stdio', program: { ...plainServer(), install } }
      const orgs = { polled: { upstreams: { 'acme/declared': declared } } }
      const applied = await request('POST', '/apply', { orgs })
      const warnings = ['acme/declared: its program is being installed; its tools are read afterwards.']
      expect(applied).toMatchObject({ status: 200, body: { warnings } })
      const details = async () => (await admin('GET', 'acme/declared')).body
      await expect.poll(details, { timeout: 10_000 }).toMatchObject({ installation: { last_line: 'fetching' } })
      writeFileSync(released, '')
      await expect.poll(details, { timeout: 20_000 }).toMatchObject({ installation: null, tools: expect.any(Number) })
    })

    it('shows why it could not be installed, until it is', async () => {
      const release = await installed('acme/failing', 1)
      expect((await admin('POST', 'acme/failing', '/refresh')).status).toBe(202)
      release()
      const installation = async () => (await admin('GET', 'acme/failing')).body.installation
      await expect.poll(installation, { timeout: 10_000 }).toMatchObject({
        ...{ state: 'failed', last_line: 'pip: no such package' },
        problem: expect.stringMatching(/could not be installed: sh -c .* exited with code 1/),
      })
      const program = { install: ['true'] }
      await updateUpstream(front.core.adminContext, operator, { orgId: org, name: 'acme/failing' }, { program })
      expect((await admin('POST', 'acme/failing', '/refresh')).status).toBe(202)
      await expect
        .poll(async () => (await admin('GET', 'acme/failing')).body, { timeout: 20_000 })
        .toMatchObject({ installation: null, tools: expect.any(Number) })
    })
  })
})
