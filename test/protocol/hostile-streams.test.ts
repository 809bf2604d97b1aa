import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey, revokeKey, updateKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'
import { sendModern } from '../support/modern.ts'
import { RawConnection, rawRequest } from '../support/raw-http.ts'

const MiB = 1024 * 1024
const knownTools = ['sandbox_execute', 'execution_wait', 'files_upload', 'files_download']
const limits = { perKey: 20, perOrg: 30, transfersPerKey: 2, bufferBytes: 64 * MiB }
const events = { accept: 'text/event-stream' }

let front: Front
beforeAll(async () => {
  front = await openFront(threadsProfile, { dev: false }, undefined, undefined, limits)
})
afterAll(() => front.close())

interface Key {
  id: string
  org: string
  headers: Record<string, string>
}

let orgs = 0
async function newOrg(name: string): Promise<string> {
  return (await createOrg(front.core.adminContext, operator, `${name} ${++orgs}`)).id
}

async function newKey(org: string, settings: { tools?: string[]; expires_at?: string } = {}): Promise<Key> {
  const { id, secret } = await createKey(front.core.adminContext, operator, org, settings, knownTools)
  return { id, org, headers: { 'x-api-key': secret } }
}

const ping = (key: Key) => front.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'ping' }, key.headers)

/** Opens a stream and leaves it open. */
class Stream {
  readonly #stop = new AbortController()
  readonly response: Promise<Response>

  constructor(path: string, init: RequestInit) {
    this.response = fetch(`${front.url}${path}`, { ...init, signal: this.#stop.signal })
  }

  /** Resolves when the server has ended the stream, in whatever way. */
  async ended(): Promise<void> {
    const response = await this.response
    await response.text().catch(() => {})
  }

  close(): void {
    this.#stop.abort()
  }
}

const getStream = (key: Key) => new Stream('/mcp', { headers: { ...events, ...key.headers } })

describe('a string of JSON-RPC that is longer than any client needs', () => {
  const long = 'x'.repeat(3_900_000)
  const initialize = { protocolVersion: '2025-11-25', clientInfo: { name: 'x', version: '1' } }
  const messages: [string, object][] = [
    ['id', { id: long, method: 'ping' }],
    ['method', { id: 1, method: long }],
    ['progressToken', { id: 1, method: 'tools/call', params: { name: 'x', _meta: { progressToken: long } } }],
    ['uri', { id: 1, method: 'resources/read', params: { uri: long } }],
    ['name', { id: 1, method: 'tools/call', params: { name: long } }],
    ['cursor', { id: 1, method: 'tools/list', params: { cursor: long } }],
    ['requestId', { method: 'notifications/cancelled', params: { requestId: long } }],
    ['protocolVersion', { id: 1, method: 'initialize', params: { ...initialize, protocolVersion: long } }],
    ['capabilities', { id: 1, method: 'initialize', params: { ...initialize, capabilities: { roots: { long } } } }],
  ]

  it.each(messages)('is refused, and not repeated: %s', async (_, message) => {
    const key = await newKey(await newOrg('long strings'))
    const response = await front.post('/mcp?session=true', { jsonrpc: '2.0', ...message }, key.headers)
    const text = await response.text()
    expect(text.length).toBeLessThan(1_000)
    expect(JSON.parse(text)).toMatchObject({ error: { code: expect.any(Number) } })
  })

  it('is refused as the id of a subscription', async () => {
    const key = await newKey(await newOrg('long id'))
    const response = await sendModern(
      front.url,
      'subscriptions/listen',
      { notifications: {} },
      { id: long, headers: key.headers },
    )
    expect([response.status, (await response.text()).length < 1_000]).toEqual([400, true])
  })

  it('cannot be subscribed to many times in one session', async () => {
    const key = await newKey(await newOrg('subscriptions'))
    const params = { ...initialize, capabilities: {} }
    const opened = await front.post(
      '/mcp?session=true',
      { jsonrpc: '2.0', id: 1, method: 'initialize', params },
      key.headers,
    )
    const session = { ...key.headers, 'mcp-session-id': opened.headers.get('mcp-session-id') ?? '' }
    const subscribe = async (n: number) => {
      const params = { uri: `x:${n}${'y'.repeat(15_000)}` }
      const response = await front.post(
        '/mcp',
        { jsonrpc: '2.0', id: 1, method: 'resources/subscribe', params },
        session,
      )
      return (await response.json()) as { error?: object }
    }
    expect([(await subscribe(1)).error, (await subscribe(2)).error]).toEqual([undefined, undefined])
    const rest = await Promise.all([3, 4, 5, 6].map(subscribe))
    expect(rest.at(-1)?.error).toMatchObject({ message: expect.stringContaining('65536') })
  })
})

describe('a key that opens more than its share', () => {
  it('is refused with 429 and Retry-After, as is its organization, and no other organization', async () => {
    const [org, other] = [await newOrg('many streams'), await newOrg('few streams')]
    const [hostile, colleague, good] = [await newKey(org), await newKey(org), await newKey(other)]
    const streams = Array.from({ length: 40 }, () => getStream(hostile))
    const answers = await Promise.all(streams.map(({ response }) => response))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(limits.perKey)
    const refused = answers.filter(({ status }) => status === 429)
    expect(refused).toHaveLength(20)
    expect(refused.every(({ headers }) => headers.get('retry-after') === '1')).toBe(true)
    expect((await ping(hostile)).status).toBe(429)
    const more = Array.from({ length: 20 }, () => getStream(colleague))
    const counts = (await Promise.all(more.map(({ response }) => response))).map(({ status }) => status)
    expect(counts.filter((status) => status === 200)).toHaveLength(limits.perOrg - limits.perKey)
    const others = await Promise.all(Array.from({ length: 10 }, () => ping(good)))
    expect(others.map(({ status }) => status)).toEqual(Array(10).fill(200))
    for (const stream of [...streams, ...more]) stream.close()
    await expect.poll(async () => (await ping(hostile)).status).toBe(200)
  })

  it('cannot fill the memory for bodies, neither with bodies that do not arrive nor with streams that had one', async () => {
    const [hostile, good] = [await newKey(await newOrg('many bodies')), await newKey(await newOrg('small bodies'))]
    const host = `127.0.0.1:${front.port}`
    const head = { host, ...hostile.headers, 'content-type': 'application/json', 'content-length': `${4 * MiB}` }
    const connections = Array.from({ length: 6 }, () => new RawConnection(front.port))
    for (const connection of connections) await connection.write(rawRequest('POST', '/mcp', head))
    // A quarter of 64 MiB is four bodies of 4 MiB.
    const refused = await Promise.race(connections.map((connection) => connection.response()))
    expect([refused?.status, refused?.head]).toEqual([429, expect.stringContaining('retry-after: 1')])
    expect((await ping(good)).status).toBe(200)
    for (const connection of connections) connection.destroy()
    await expect.poll(async () => (await ping(hostile)).status).toBe(200)
    const junk = 'x'.repeat(3.9 * MiB)
    const options = { headers: hostile.headers, meta: { junk } }
    const held = await Promise.all(
      Array.from({ length: 6 }, () => sendModern(front.url, 'subscriptions/listen', { notifications: {} }, options)),
    )
    expect(held.filter(({ status }) => status === 429).length).toBeGreaterThan(0)
    expect((await ping(good)).status).toBe(200)
    await Promise.all(held.map(({ body }) => body?.cancel()))
  })
})

describe('a server with all its connections open', () => {
  it('closes those that are idle longest, and accepts new ones', async () => {
    const small = await openFront(undefined, { connectionsMax: 16 })
    const idle: RawConnection[] = []
    for (let n = 0; n < 40; n++) {
      const connection = new RawConnection(small.port)
      await connection.write('GET / HTTP/1.1\r\n')
      idle.push(connection)
    }
    expect((await fetch(`${small.url}/healthz`)).status).toBe(200)
    await idle[0]!.closed()
    for (const connection of idle) connection.destroy()
    await small.close()
  })

  it('refuses further ones with 503 and closes them when none is idle', async () => {
    const small = await openFront(undefined, { connectionsMax: 16 })
    const host = `127.0.0.1:${small.port}`
    const busy = Array.from({ length: 16 }, () => new RawConnection(small.port))
    for (const connection of busy) {
      await connection.write(rawRequest('GET', '/mcp', { host, ...events, connection: 'keep-alive' }))
      await connection.until('\r\n\r\n')
    }
    const further = new RawConnection(small.port)
    await further.write(rawRequest('GET', '/healthz', { host, connection: 'keep-alive' }))
    const response = await further.response()
    expect([response?.status, response?.body]).toEqual([503, expect.stringContaining('connections')])
    await further.closed()
    busy[0]!.destroy()
    await expect.poll(async () => (await fetch(`${small.url}/healthz`)).status).toBe(200)
    for (const connection of busy) connection.destroy()
    await small.close()
  })
})

describe('what a key has open', () => {
  /** Opens one of each; every entry resolves when the server has ended it. */
  async function openAll(key: Key, runId: string): Promise<Record<string, Promise<void>>> {
    const lines = { accept: 'application/x-ndjson', ...key.headers }
    const output = new Stream(`/v1/executions/${runId}/output`, { headers: lines })
    const listen = sendModern(front.url, 'subscriptions/listen', { notifications: {} }, { headers: key.headers })
    const wait = sendModern(
      front.url,
      'tools/call',
      { name: 'execution_wait', arguments: { trace_id: runId, wait_seconds: 50 } },
      { headers: key.headers },
    )
    const get = getStream(key)
    const [upload, download] = [await uploading(key), await downloading(key)]
    await Promise.all([output.response, listen, get.response])
    const rest = async (response: Promise<Response>) => {
      await response.then((answer) => answer.text()).catch(() => {})
    }
    const streams = { output: output.ended(), listen: rest(listen), wait: rest(wait), get: get.ended() }
    return { ...streams, upload: upload.closed(), download: download.closed() }
  }

  async function uploading(key: Key): Promise<RawConnection> {
    const file = { source: 'thread', id: `half-${key.id}`, path: 'f', size: MiB }
    const { url } = (await (await front.post('/v1/files/upload', file, key.headers)).json()) as { url: string }
    const connection = new RawConnection(front.port)
    const head = { host: `127.0.0.1:${front.port}`, 'content-length': `${MiB}`, connection: 'keep-alive' }
    await connection.write(rawRequest('PUT', new URL(url).pathname, head) + 'x'.repeat(1000))
    return connection
  }

  /** Begins the download of a file whose last bytes do not come. */
  async function downloading(key: Key): Promise<RawConnection> {
    const file = { source: 'thread', id: `read-${key.id}`, path: 'f' }
    const link = async (what: string, body: object) =>
      ((await (await front.post(`/v1/files/${what}`, body, key.headers)).json()) as { url: string }).url
    await fetch(await link('upload', { ...file, size: 3 }), { method: 'PUT', body: 'abc' })
    const { files } = front.runner
    const { read } = files
    files.read = async (...words) => {
      const opened = await read.apply(files, words)
      async function* first() {
        yield Buffer.from('a')
        await new Promise(() => {})
      }
      return { ...opened, bytes: first() }
    }
    const connection = new RawConnection(front.port)
    const { pathname } = new URL(await link('download', file))
    await connection.write(rawRequest('GET', pathname, { host: `127.0.0.1:${front.port}`, connection: 'keep-alive' }))
    await connection.until('\r\n\r\na')
    files.read = read
    return connection
  }

  async function longRun(org: string): Promise<string> {
    const runner = await newKey(org)
    const body = { language: 'bash', code: 'echo start; sleep 50' }
    const lines = { ...runner.headers, accept: 'application/x-ndjson' }
    const response = await front.post('/v1/sandbox/execute', body, lines)
    return response.headers.get('x-trace-id') ?? ''
  }

  it('ends when the key is revoked', async () => {
    const org = await newOrg('revoked')
    const key = await newKey(org)
    const open = await openAll(key, await longRun(org))
    await revokeKey(front.core.adminContext, operator, org, key.id)
    for (const [what, ended] of Object.entries(open)) expect([what, await ended]).toEqual([what, undefined])
  })

  it('ends when the key expires', async () => {
    const org = await newOrg('expired')
    const key = await newKey(org, { expires_at: new Date(Date.now() + 3_000).toISOString() })
    const open = await openAll(key, await longRun(org))
    for (const [what, ended] of Object.entries(open)) expect([what, await ended]).toEqual([what, undefined])
  })

  it('ends when the key loses the tool, and what does not depend on it stays', async () => {
    const org = await newOrg('fewer tools')
    const key = await newKey(org, { tools: knownTools })
    const { output, wait, upload, get } = await openAll(key, await longRun(org))
    await updateKey(
      front.core.adminContext,
      operator,
      { orgId: org, id: key.id },
      { tools: ['files_download'] },
      knownTools,
    )
    await Promise.all([output, wait, upload])
    const first = await Promise.race([get, new Promise((resolve) => setImmediate(resolve, 'open'))])
    expect(first).toBe('open')
  })
})
