import { once } from 'node:events'
import { connect } from 'node:net'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Front, openFront } from '../support/front.ts'
import { rawRequest, sendRaw, statusOf } from '../support/raw-http.ts'

let front: Front
let host: string
beforeAll(async () => {
  front = await openFront()
  host = `127.0.0.1:${front.port}`
})
afterAll(async () => {
  await front.close()
})

const faults = () => front.lines.filter((line) => line.includes('"fault"'))

interface RpcAnswer {
  id: unknown
  error: { code: number; message: string }
  result?: { isError: boolean; structuredContent: { stdout: string; exit_code: number } }
}

async function send(body: string | Uint8Array): Promise<{ status: number; answer: RpcAnswer }> {
  const response = await fetch(`${front.url}/mcp`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: Buffer.from(body),
  })
  return { status: response.status, answer: (await response.json()) as RpcAnswer }
}

describe('a body that is not a JSON-RPC message', () => {
  it('is a parse error when it is not JSON', async () => {
    for (const body of ['', '{', 'null]', '{"a":}', "{'a':1}", '\ufeff\ufeff{}', 'NaN', '{"jsonrpc":"2.0",}']) {
      const { status, answer } = await send(body)
      expect([body, status, answer.error.code, answer.id]).toEqual([body, 400, -32700, null])
    }
  })

  it('is a parse error when it is not UTF-8', async () => {
    const { status, answer } = await send(Buffer.from([0x22, 0xff, 0xfe, 0x22]))
    expect([status, answer.error.code]).toEqual([400, -32700])
  })

  it('is an invalid request when it is JSON of another shape', async () => {
    const bodies = ['null', '7', '"text"', '{}', '{"jsonrpc":"1.0","id":1,"method":"ping"}', '{"jsonrpc":"2.0","id":1}']
    const odd = ['{"jsonrpc":"2.0","id":1,"method":7}', '{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}']
    const ids = ['null', '{}', '[]', 'true'].map((id) => `{"jsonrpc":"2.0","id":${id},"method":"ping"}`)
    for (const body of [...bodies, ...odd, ...ids]) {
      const { status, answer } = await send(body)
      expect([body, status, answer.error.code]).toEqual([body, 400, -32600])
    }
  })

  it('is rejected when it is nested or compressed beyond any use', async () => {
    const deep = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":${'['.repeat(200_000)}${']'.repeat(200_000)}}}`
    const wide = `[${'{},'.repeat(500_000)}{}]`
    for (const body of [deep, wide, '['.repeat(3_000_000), '{"a":'.repeat(100_000)]) {
      const { status, answer } = await send(body)
      expect([status, answer.error.code]).toEqual([400, -32700])
    }
  })

  it('is not counted as nested for brackets inside strings', async () => {
    const code = `print(len(${JSON.stringify('[{"\\"'.repeat(10_000))}))`
    const params = { name: 'sandbox_execute', arguments: { code } }
    const { answer } = await send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }))
    expect(answer.result?.structuredContent.stdout).toBe('50000\n')
  })

  it('does not pollute prototypes', async () => {
    const keys = ['__proto__', 'constructor', 'prototype']
    for (const key of keys) {
      await send(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"${key}":{"polluted":1}},"${key}":{"polluted":1}}`)
    }
    const inherited = await send('{"__proto__":{"jsonrpc":"2.0","id":1,"method":"ping"}}')
    expect(inherited.answer.error.code).toBe(-32600)
    expect(({} as { polluted?: number }).polluted).toBeUndefined()
  })

  it('is answered in the same form whatever it contains, and never logged as a fault', async () => {
    const anyMessage = fc.oneof(
      fc.jsonValue(),
      fc.record(
        {
          jsonrpc: fc.oneof(fc.constant('2.0'), fc.jsonValue()),
          id: fc.jsonValue(),
          method: fc.oneof(fc.constantFrom('ping', 'tools/list', 'tools/call', 'initialize'), fc.string()),
          params: fc.oneof(
            fc.jsonValue(),
            fc.record({ name: fc.constant('sandbox_execute'), arguments: fc.dictionary(fc.string(), fc.jsonValue()) }),
          ),
        },
        { requiredKeys: [] },
      ),
    )
    await fc.assert(
      fc.asyncProperty(anyMessage, async (message) => {
        const response = await front.post('/mcp', JSON.stringify(message))
        expect([200, 202, 400]).toContain(response.status)
        const text = await response.text()
        if (response.status !== 202) expect(JSON.stringify(JSON.parse(text))).toContain('"jsonrpc":"2.0"')
      }),
      { numRuns: 150 },
    )
    expect(faults()).toEqual([])
  })
})

describe('code of a megabyte', () => {
  it('arrives complete, also when every character is escaped', async () => {
    const line = '#"\\\t\u0001é\n'
    const code = line.repeat(Math.floor((1024 * 1024 - 20) / Buffer.byteLength(line)))
    const params = { name: 'sandbox_execute', arguments: { code, language: 'python' } }
    const escaped = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params })
    expect(escaped.length).toBeGreaterThan(1.4 * 1024 * 1024)
    const started = front.runner.specs.size
    const { status } = await send(escaped)
    expect(status).toBe(200)
    const runId = [...front.runner.specs.keys()][started]!
    expect((await front.store.runs.get(runId))?.codeBytes).toBe(Buffer.byteLength(code))
  })

  it('is rejected by its size above that, and as a body above four megabytes', async () => {
    const call = (code: string) =>
      JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: { name: 'sandbox_execute', arguments: { code } },
      })
    expect((await send(call('a'.repeat(1024 * 1024 + 1)))).answer.error.message).toContain('the maximum is 1048576')
    const response = await front.post('/mcp', call('a'.repeat(4 * 1024 * 1024)))
    expect(response.status).toBe(413)
    expect(await response.json()).toMatchObject({
      error: { message: expect.stringContaining('4194304'), data: { error: 'payload_too_large' } },
    })
  })

  it('is answered before it has arrived, and its connection stays usable', async () => {
    const head = { host, 'content-type': 'application/json', connection: 'keep-alive' }
    const body = Buffer.alloc(6 * 1024 * 1024, ' ')
    const socket = connect(front.port, '127.0.0.1')
    socket.write(rawRequest('POST', '/mcp', { ...head, 'content-length': `${body.length}` }))
    const [refusal] = (await once(socket, 'data')) as [Buffer]
    expect(statusOf(refusal.toString())).toBe(413)
    socket.write(body)
    socket.write(rawRequest('GET', '/healthz', { host }))
    const [answer] = (await once(socket, 'data')) as [Buffer]
    expect(statusOf(answer.toString())).toBe(200)
    socket.destroy()
  })
})

describe('a web page', () => {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' })
  const headers = () => ({ host, 'content-type': 'application/json' })
  const status = async (more: Record<string, string>, method = 'POST', path = '/mcp') =>
    statusOf(
      await sendRaw(front.port, rawRequest(method, path, { ...headers(), ...more }, method === 'POST' ? body : '')),
    )

  it('is accepted as a client when it sends no browser headers', async () => {
    expect(await status({})).toBe(200)
  })

  it('cannot reach any path through a host name of its own', async () => {
    const paths = ['/mcp', '/healthz', '/readyz', '/v1/sandbox/execute', '/v1/executions/x/cancel', '/nope']
    for (const path of paths) {
      for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'OPTIONS']) {
        expect([path, method, await status({ host: `evil.example:${front.port}` }, method, path)]).toEqual([
          path,
          method,
          403,
        ])
        expect([path, method, await status({ origin: 'https://evil.example' }, method, path)]).toEqual([
          path,
          method,
          403,
        ])
        expect([path, method, await status({ 'sec-fetch-site': 'cross-site' }, method, path)]).toEqual([
          path,
          method,
          403,
        ])
      }
    }
  })

  it('cannot send what a form or a simple request can', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', '']) {
      expect(await status({ 'content-type': type })).toBe(415)
    }
  })

  it('learns nothing from a preflight', async () => {
    const answer = await sendRaw(
      front.port,
      rawRequest('OPTIONS', '/mcp', { host, origin: 'https://evil.example', 'access-control-request-method': 'POST' }),
    )
    expect(answer.toLowerCase()).not.toContain('access-control-allow')
  })

  it('from an allowed origin is accepted, with CORS headers', async () => {
    const open = await openFront(undefined, { allowedOrigins: ['https://app.example'] })
    const preflight = await fetch(`${open.url}/mcp`, { method: 'OPTIONS', headers: { origin: 'https://app.example' } })
    expect([preflight.status, preflight.headers.get('access-control-allow-origin')]).toEqual([
      204,
      'https://app.example',
    ])
    const ping = await open.post('/mcp', body, { origin: 'https://app.example' })
    expect([ping.status, ping.headers.get('access-control-allow-origin')]).toEqual([200, 'https://app.example'])
    await open.close()
  })
})

describe('requests that no library sends', () => {
  it('get a well-formed response or none, and the server keeps working', async () => {
    const requests = [
      'GET\r\n\r\n',
      'POST /mcp HTTP/1.1\r\n\r\n',
      'POST /mcp HTTP/1.0\r\n\r\n',
      rawRequest('POST', '/mcp', { host, 'content-type': 'application/json', 'content-length': '-1' }, '{}'),
      rawRequest('POST', '/mcp', { host, 'content-type': 'application/json', 'content-length': '1' }, '{}'),
      rawRequest(
        'POST',
        '/mcp',
        { host, 'content-type': 'application/json', 'transfer-encoding': 'chunked' },
        'zz\r\n{}',
      ),
      rawRequest('GET', '/%', { host }),
      rawRequest('GET', '/%00', { host }),
      rawRequest('GET', '//evil.example/healthz', { host }),
      rawRequest('GET', 'http://evil.example/healthz', { host }),
      rawRequest('GET', '/../../etc/passwd', { host }),
      rawRequest('BREW', '/mcp', { host }),
      rawRequest('GET', `/${'a'.repeat(20_000)}`, { host }),
      rawRequest('GET', '/healthz', { host, 'x-many': 'a'.repeat(20_000) }),
      'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
      Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01]),
    ]
    for (const request of requests) {
      const answer = await sendRaw(front.port, request, 500)
      expect([0, 400, 403, 404, 405, 414, 415, 431]).toContain(statusOf(answer))
      expect(answer).not.toContain('node_modules')
    }
    expect((await fetch(`${front.url}/healthz`)).status).toBe(200)
    expect(faults()).toEqual([])
  })

  it('are rejected in the usual form when the URL is malformed, after the checks of every request', async () => {
    const own = await sendRaw(front.port, rawRequest('GET', '/v1/executions/%zz', { host }))
    expect(statusOf(own)).toBe(400)
    expect(own).toMatch(/x-trace-id: .*\r\n/)
    expect(own).toContain('"error":"')
    const foreign = await sendRaw(front.port, rawRequest('GET', '/v1/executions/%zz', { host: 'evil.example' }))
    expect(statusOf(foreign)).toBe(403)
  })

  it('are rejected with two Host headers', async () => {
    const twice = `GET /healthz HTTP/1.1\r\nhost: ${host}\r\nhost: evil.example\r\nconnection: close\r\n\r\n`
    const answer = await sendRaw(front.port, twice)
    expect([statusOf(answer), answer]).toEqual([400, expect.stringContaining('more than one Host header')])
  })

  it('are answered with the allowed methods of a path', async () => {
    for (const method of ['DELETE', 'PUT', 'PATCH', 'OPTIONS']) {
      const answer = await sendRaw(front.port, rawRequest(method, '/mcp', { host }))
      expect([method, statusOf(answer), /allow: [A-Z, ]*POST/i.test(answer)]).toEqual([method, 405, true])
    }
    expect(statusOf(await sendRaw(front.port, rawRequest('GET', '/mcp', { host })))).toBe(406)
    expect(
      statusOf(await sendRaw(front.port, rawRequest('GET', '/.well-known/oauth-protected-resource', { host }))),
    ).toBe(404)
  })
})

describe('every response', () => {
  it('has an id that appears in the log, and is not cached', async () => {
    for (const path of ['/healthz', '/readyz', '/nope', '/mcp']) {
      const { headers } = await fetch(`${front.url}${path}`)
      const id = headers.get('x-trace-id') ?? ''
      expect(id).toMatch(/^req_[A-Za-z0-9_-]{20}$/)
      expect(headers.get('cache-control')).toBe('no-store')
      await expect.poll(() => front.lines.some((line) => line.includes(id))).toBe(true)
    }
  })

  it('for a fault contains only its id, and the log contains the details', async () => {
    const { list, begin } = { list: front.lines.length, begin: front.store.runs.begin }
    front.store.runs.begin = async () => {
      throw new Error('the disk of secret-host is full')
    }
    const rest = await front.post('/v1/sandbox/execute', { code: 'print(1)' })
    const rpc = await front.post('/mcp', {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'sandbox_execute', arguments: { code: 'print(1)' } },
    })
    front.store.runs.begin = begin
    const texts = [await rest.text(), await rpc.text()]
    expect([rest.status, rpc.status]).toEqual([500, 500])
    for (const text of texts) {
      expect(text).not.toContain('secret-host')
      const faultId = /flt_[A-Za-z0-9_-]{20}/.exec(text)?.[0] ?? 'none'
      expect(front.lines.slice(list).filter((line) => line.includes(faultId))).toHaveLength(1)
    }
    expect(JSON.parse(texts[1]!)).toMatchObject({ id: 1, error: { code: -32603 } })
  })
})

describe('readiness', () => {
  it('is reported with the reason while no run can start', async () => {
    expect((await fetch(`${front.url}/readyz`)).status).toBe(200)
    front.runner.readiness = { ready: false, reason: 'the runner is being restarted' }
    const response = await fetch(`${front.url}/readyz`)
    front.runner.readiness = { ready: true }
    expect(response.status).toBe(503)
    expect(await response.json()).toEqual({ status: 'not_ready', reason: 'the runner is being restarted' })
  })
})

describe('large bodies of one key', () => {
  const large = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping', params: { padding: 'x'.repeat(300_000) } })

  it('take turns, while small ones are answered', async () => {
    const halfSent = await Promise.all([1, 2].map(() => beginLarge()))
    let isAnswered = false
    const third = send(large).then(({ status }) => {
      isAnswered = true
      return status
    })
    const small = await send('{"jsonrpc":"2.0","id":1,"method":"ping"}')
    expect([small.status, isAnswered]).toEqual([200, false])
    halfSent[0]?.destroy()
    expect(await third).toBe(200)
    halfSent[1]?.destroy()
  })

  it('leave their places after they were answered', async () => {
    for (let n = 0; n < 8; n++) expect((await send(large)).status).toBe(200)
  })

  /** Sends the head and the first bytes of a large request, and waits until the server reads its body. */
  async function beginLarge() {
    const socket = connect(front.port, '127.0.0.1')
    await once(socket, 'connect')
    const head = [`Host: ${host}`, 'Content-Type: application/json', 'Content-Length: 300000', 'Expect: 100-continue']
    socket.write(`POST /mcp HTTP/1.1\r\n${head.join('\r\n')}\r\n\r\n`)
    await once(socket, 'data')
    socket.write('{"jsonrpc"')
    return socket
  }
})
