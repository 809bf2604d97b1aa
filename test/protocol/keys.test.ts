import { once } from 'node:events'
import { connect } from 'node:net'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { timestamp } from '../../src/base/clock.ts'
import { newId } from '../../src/base/ids.ts'
import { checkName, operator } from '../../src/core/admin/admin.ts'
import { createKey, listKeys, revokeKey } from '../../src/core/admin/keys.ts'
import { type Front, openFront } from '../support/front.ts'

let front: Front
beforeAll(async () => {
  front = await openFront(undefined, { dev: false, trustedProxies: ['127.0.0.1'] })
})
afterAll(() => front.close())

/** A key of the organization of that name, which is created when it is new. */
async function newKey(org = 'acme', profile = 'default') {
  checkName('org', org)
  const { id: orgId } = await front.store.orgs.ensureNamed({ id: newId('org'), name: org, createdAt: timestamp() })
  const { secret, ...key } = await createKey(front.core.adminContext, operator, orgId, { profile, name: 'test' }, [])
  return { key, secret }
}

const listed = async (orgId: string) =>
  (await listKeys(front.core.adminContext, operator, orgId, {})).items.map(({ id }) => id)

const revoke = ({ id, org_id: orgId }: { id: string; org_id: string }) =>
  revokeKey(front.core.adminContext, operator, orgId, id)

const bearer = (secret: string) => ({ authorization: `Bearer ${secret}` })

/** Each test has its own client address, so that failures in one test do not count in another. */
let addresses = 0
const from = (address = `198.51.100.${++addresses}`) => ({ 'x-forwarded-for': address })

const run = (headers: Record<string, string>, code = 'echo hello') =>
  front.post('/v1/sandbox/execute', { language: 'bash', code }, headers)
const statusOf = async (headers: Record<string, string>) => (await run(headers)).status

describe('a key', () => {
  it('has a secret of 256 random bits after its region; only its hash and prefix are stored', async () => {
    const { key, secret } = await newKey()
    expect(secret).toMatch(/^sk-us-[A-Za-z0-9_-]{43}$/)
    expect(key.prefix).toBe(secret.slice(0, 'sk-us-'.length + 4))
    expect((await front.store.keys.get(key.id))?.secretHash).toMatch(/^[0-9a-f]{64}$/)
    expect(JSON.stringify(await front.store.keys.get(key.id))).not.toContain(secret.slice(12))
  })

  it('belongs to the organization of that name, which is created once', async () => {
    const keys = await Promise.all([newKey('twin'), newKey('twin')])
    expect(keys[0].key.org_id).toBe(keys[1].key.org_id)
    expect((await listed(keys[0].key.org_id)).sort()).toEqual(keys.map(({ key }) => key.id).sort())
  })

  it('is rejected with a name that contains terminal control characters', async () => {
    for (const org of ['', ' a', 'a\nb', '\u001b[2J', 'x'.repeat(65)]) {
      await expect(newKey(org)).rejects.toMatchObject({ code: 'invalid_argument' })
    }
  })

  it('is not the key of development mode', async () => {
    expect(await listed('org_dev')).not.toContain('key_dev')
    await expect(revoke({ id: 'key_dev', org_id: 'org_dev' })).rejects.toMatchObject({ code: 'not_found' })
  })
})

describe('a caller', () => {
  it('is authenticated by its key in either header, over MCP and REST', async () => {
    const { secret } = await newKey()
    for (const headers of [bearer(secret), { authorization: `bearer  ${secret}` }, { 'x-api-key': secret }]) {
      expect(await statusOf(headers)).toBe(200)
      const list = await front.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }, headers)
      expect(list.status).toBe(200)
    }
  })

  it('is authenticated by x-api-key when Authorization holds something else, such as the credentials of a proxy', async () => {
    const [one, other] = [await newKey('one'), await newKey('other')]
    expect(await statusOf({ 'x-api-key': one.secret, authorization: 'Basic dXNlcjpwYXNz' })).toBe(200)
    const answer = await run({ 'x-api-key': one.secret, ...bearer(other.secret) })
    const { trace_id: runId } = (await answer.json()) as { trace_id: string }
    expect((await front.store.runs.get(runId))?.keyId).toBe(one.key.id)
    expect(await statusOf({ 'x-api-key': 'wrong', ...bearer(one.secret), ...from() })).toBe(401)
  })

  it('without a valid key is rejected with the response that MCP clients expect', async () => {
    const { secret } = await newKey()
    const wrong: Record<string, string>[] = [
      bearer('sk-us-wrong'),
      bearer(`${secret}x`),
      bearer(secret.toUpperCase()),
      { authorization: secret },
      { authorization: `Basic ${secret}` },
      { 'x-api-key': `${secret}, ${secret}` },
    ]
    for (const headers of wrong) {
      const answer = await run({ ...headers, ...from() })
      expect([headers, answer.status]).toEqual([headers, 401])
      expect(answer.headers.get('www-authenticate')).toBe('Bearer')
      expect(await answer.json()).toEqual({ error: 'unauthorized', message: 'Invalid or revoked API key.' })
    }
  })

  it('says how to send a key where none was sent, and does not count that as a failure', async () => {
    const address = from()
    for (let attempt = 0; attempt < 5; attempt++)
      for (const headers of [{}, { authorization: 'Bearer ' }, { 'x-api-key': '' }, { cookie: 'sk-us-x' }]) {
        const answer = await run({ ...headers, ...address })
        expect([headers, answer.status]).toEqual([headers, 401])
        expect(answer.headers.get('www-authenticate')).not.toMatch(/bearer/i)
        expect(await answer.json()).toMatchObject({
          error: 'unauthorized',
          message: expect.stringMatching(/^No API key was sent\. .*Authorization: Bearer KEY/),
        })
      }
    expect((await run({ ...bearer('sk-us-wrong'), ...address })).status).toBe(401)
  })

  it('sends an error of JSON-RPC over MCP where no key was sent, so that the SDKs show its message', async () => {
    const answer = await front.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }, from())
    expect([answer.status, answer.headers.get('www-authenticate')]).toEqual([401, 'ApiKey realm="glovebox"'])
    const message = expect.stringMatching(/^No API key was sent\. .*Authorization: Bearer KEY/)
    expect(await answer.json()).toEqual({
      jsonrpc: '2.0',
      id: null,
      error: { code: -32600, message, data: expect.objectContaining({ error: 'unauthorized', code: 'key_missing' }) },
    })
    const wrong = await front.post('/mcp', {}, { ...bearer('sk-us-wrong'), ...from() })
    expect(await wrong.json()).toEqual({ error: 'unauthorized', message: 'Invalid or revoked API key.' })
  })

  it.each([
    ['GET', '/.well-known/oauth-protected-resource/mcp'],
    ['GET', '/.well-known/oauth-authorization-server'],
    ['GET', '/mcp/.well-known/openid-configuration'],
    ['POST', '/register'],
  ])('answers a client that tries OAuth with a 404 that says to use a key: %s %s', async (method, path) => {
    const answer = await fetch(`${front.url}${path}`, { method, headers: { 'content-type': 'application/json' } })
    expect([answer.status, answer.headers.get('content-type')]).toEqual([404, 'application/json; charset=utf-8'])
    expect(await answer.json()).toMatchObject({
      error: 'not_found',
      error_description: expect.stringContaining('API key'),
    })
  })

  it('needs a key on every path except the health checks', async () => {
    const paths = ['/mcp', '/v1/sandbox/execute', '/v1/executions/trc_x/cancel', '/mcp?key=x']
    for (const path of paths) {
      for (const method of ['GET', 'POST', 'PUT', 'DELETE']) {
        const body = method === 'POST' ? { body: '{}', headers: { 'content-type': 'application/json', ...from() } } : {}
        const answer = await fetch(`${front.url}${path}`, { method, headers: from(), ...body })
        expect([method, path, answer.status]).toEqual([method, path, 401])
      }
    }
    for (const path of ['/healthz', '/readyz']) expect((await fetch(`${front.url}${path}`)).status).toBe(200)
  })

  it('receives an explanation when its profile was removed from the configuration, and not a failed authentication', async () => {
    const { key, secret } = await newKey()
    // As after a restart with a configuration that lost it.
    await front.store.keys.update(key.id, { profile: 'removed' })
    const headers = { ...bearer(secret), ...from() }
    for (let count = 0; count < 5; count++) {
      const answer = await run(headers)
      expect(answer.status).toBe(403)
      expect(await answer.json()).toMatchObject({ error: 'forbidden', message: expect.stringContaining("'removed'") })
    }
  })

  it('cannot access the run of another organization', async () => {
    const [mine, other] = [await newKey('mine'), await newKey('stranger')]
    const going = run(bearer(mine.secret), 'sleep 0.5; echo done')
    await expect.poll(async () => (await front.store.runs.unfinished()).length).toBe(1)
    const [{ id } = { id: '' }] = await front.store.runs.unfinished()
    const cancel = (secret: string) => front.post(`/v1/executions/${id}/cancel`, {}, bearer(secret))
    expect((await cancel(other.secret)).status).toBe(404)
    expect(await (await going).json()).toMatchObject({ stdout: 'done\n', exit_code: 0 })
  })
})

describe('an address that fails to authenticate', () => {
  const guess = (headers: Record<string, string>) => ({ ...headers, ...bearer('sk-us-guess') })

  it('must wait from its fourth failure in a minute on, for the stated time', async () => {
    const address = from()
    for (let count = 0; count < 3; count++) expect(await statusOf(guess(address))).toBe(401)
    for (let count = 0; count < 3; count++) {
      const answer = await run(guess(address))
      expect(answer.status).toBe(429)
      const seconds = Number(answer.headers.get('retry-after'))
      expect(seconds).toBeGreaterThan(50)
      expect(seconds).toBeLessThanOrEqual(60)
      expect(await answer.json()).toMatchObject({
        error: 'rate_limited',
        hint: expect.stringContaining(`${seconds} s`),
      })
    }
  })

  it('does not block other addresses, nor itself with a valid key', async () => {
    const { secret } = await newKey()
    const address = from()
    for (let count = 0; count < 5; count++) await run(guess(address))
    expect(await statusOf({ ...address, ...bearer(secret) })).toBe(200)
    expect(await statusOf(guess(address))).toBe(429)
    expect(await statusOf(guess(from()))).toBe(401)
  })

  it('is a whole /64 network with IPv6', async () => {
    for (let count = 1; count < 4; count++) expect(await statusOf(guess(from(`2001:db8:5:5::${count}`)))).toBe(401)
    expect(await statusOf(guess(from('2001:db8:5:5:ffff::9')))).toBe(429)
    expect(await statusOf(guess(from('2001:db8:5:6::1')))).toBe(401)
  })

  it('cannot be spoofed without a trusted proxy', async () => {
    const plain = await openFront(undefined, { dev: false })
    const statuses: number[] = []
    for (let count = 0; count < 5; count++) statuses.push((await plain.post('/mcp', {}, guess(from()))).status)
    await plain.close()
    expect(statuses).toEqual([401, 401, 401, 429, 429])
  })
})

describe('a revoked key', () => {
  it('is rejected immediately', async () => {
    const { key, secret } = await newKey()
    expect(await statusOf(bearer(secret))).toBe(200)
    expect(await revoke(key)).toBe(true)
    expect(await statusOf({ ...bearer(secret), ...from() })).toBe(401)
    expect(await revoke(key)).toBe(false)
  })

  it('has its runs cancelled and its slots retired, and no others', async () => {
    const [gone, kept] = [await newKey('gone'), await newKey('kept')]
    const code = 'echo begun; for i in $(seq 40); do sleep 0.05; done; echo done'
    const [ended, other] = [run(bearer(gone.secret), code), run(bearer(kept.secret), code)]
    await expect.poll(async () => (await front.store.runs.unfinished()).length).toBe(2)
    await revoke(gone.key)
    expect(await (await ended).json()).toMatchObject({ ending: { kind: 'cancelled' }, success: false })
    expect(await (await other).json()).toMatchObject({ exit_code: 0, stdout: 'begun\ndone\n' })
    await expect.poll(async () => (await front.store.keys.get(gone.key.id))?.retiredAt).toBeTruthy()
  })

  it('starts nothing with a body that was still arriving', async () => {
    const { key, secret } = await newKey()
    const body = JSON.stringify({ language: 'bash', code: 'echo too late' })
    const socket = connect(front.port, '127.0.0.1')
    await once(socket, 'connect')
    socket.write(
      `POST /v1/sandbox/execute HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${secret}\r\ncontent-type: application/json\r\n` +
        `content-length: ${body.length}\r\nconnection: close\r\n\r\n${body.slice(0, 5)}`,
    )
    // The head has been read once a later request is answered.
    await fetch(`${front.url}/healthz`)
    await revoke(key)
    socket.write(body.slice(5))
    const [answer] = (await once(socket, 'data')) as [Buffer]
    socket.destroy()
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 401 /)
    const rows = (await front.store.runs.unfinished()).filter(({ keyId }) => keyId === key.id)
    expect(rows).toEqual([])
  })
})

describe('the official client', () => {
  it('works with a key, and receives an authentication error without one', async () => {
    const { secret } = await newKey()
    const connected = async (headers: Record<string, string>) => {
      const client = new Client({ name: 'judge', version: '1.0.0' })
      const transport = new StreamableHTTPClientTransport(new URL(`${front.url}/mcp`), { requestInit: { headers } })
      await client.connect(transport as Transport)
      return client
    }
    const client = await connected(bearer(secret))
    const result = await client.callTool({
      name: 'sandbox_execute',
      arguments: { code: 'echo $((6 * 7))', language: 'bash' },
    })
    expect(result.structuredContent).toMatchObject({ stdout: '42\n' })
    await client.close()
    await expect(connected(from())).rejects.toThrow(/401|unauthorized/i)
  })
})

describe('the log', () => {
  it('contains no key, whatever was done with it', async () => {
    const { secret } = await newKey()
    const random = secret.slice('sk-us-'.length + 4)
    const headers = { ...bearer(secret), 'x-api-key': secret, cookie: `key=${secret}` }
    const mark = front.lines.length
    await run(headers)
    await run({ ...headers, 'content-type': 'text/plain' })
    await fetch(`${front.url}/mcp?api_key=${secret}`, { headers })
    await fetch(`${front.url}/${secret}`, { headers })
    const { begin } = front.store.runs
    front.store.runs.begin = async () => {
      throw new Error(`no row for Bearer ${secret}`)
    }
    expect((await run(headers)).status).toBe(500)
    front.store.runs.begin = begin
    await expect.poll(() => front.lines.slice(mark).join('\n')).toContain('no row for')
    expect(front.lines.join('\n')).not.toContain(random)
  })
})
