/** Promise 8: a web page cannot reach a server in development mode. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Front, openFront } from '../support/front.ts'
import { rawRequest, sendRaw, statusOf } from '../support/raw-http.ts'

let front: Front
let runsBefore: number
beforeAll(async () => {
  front = await openFront()
})
beforeEach(() => {
  runsBefore = front.runner.specs.size
})
afterAll(() => front?.close())

const execute = JSON.stringify({
  jsonrpc: '2.0',
  id: 1,
  method: 'tools/call',
  params: { name: 'sandbox_execute', arguments: { code: 'print("reached")', language: 'python' } },
})
const json = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }

/** The request of a program on this machine, with the differences of a page's request. */
const call = (headers: Record<string, string>, { method = 'POST', path = '/mcp', body = execute } = {}) =>
  sendRaw(front.port, rawRequest(method, path, { host: `127.0.0.1:${front.port}`, ...json, ...headers }, body))

const runsSince = () => front.runner.specs.size - runsBefore

describe('a program on this machine', () => {
  it('can send the request that no page can send', async () => {
    const answer = await call({})
    expect(statusOf(answer)).toBe(200)
    expect(answer).toContain('reached')
    expect(runsSince()).toBe(1)
  })

  // A tunnel or a container maps another port. A page that was served there sends its own Origin, which is refused.
  it.each(['localhost.:PORT', '127.0.0.1', '127.0.0.1:1'])('can use a mapped port or a final dot: %s', async (host) => {
    expect(statusOf(await call({ host: host.replace('PORT', `${front.port}`) }))).toBe(200)
  })
})

/** What distinguishes a page's request, and the refusal. */
const pages: [what: string, headers: Record<string, string>, status: number][] = [
  ['a name made to resolve to loopback', { host: 'rebound.example' }, 403],
  ['such a name with the right port', { host: 'rebound.example:PORT' }, 403],
  ['a name that begins like ours', { host: 'localhost.rebound.example:PORT' }, 403],
  ['our name in front of an @', { host: 'localhost:PORT@rebound.example' }, 403],
  ['another address of loopback', { host: '127.0.0.2:PORT' }, 403],
  ['the address of everything', { host: '0.0.0.0:PORT' }, 403],
  ['an address in another notation', { host: '2130706433:PORT' }, 403],
  ['no name', { host: '' }, 403],
  ['an origin', { origin: 'https://page.example' }, 403],
  ['the origin of another local server', { origin: 'http://localhost:3000' }, 403],
  ['our origin, but of another scheme', { origin: 'https://127.0.0.1:PORT' }, 403],
  ['our origin, but of another name', { origin: 'http://localhost:PORT' }, 403],
  ['the origin of a sandboxed frame or a file', { origin: 'null' }, 403],
  ['a request from another site', { 'sec-fetch-site': 'cross-site' }, 403],
  ['a request from another port of this site', { 'sec-fetch-site': 'same-site' }, 403],
  ['a value of a browser to come', { 'sec-fetch-site': 'same-planet' }, 403],
  ['text, which needs no asking first', { 'content-type': 'text/plain' }, 415],
  ['text that names JSON', { 'content-type': 'text/plain; application/json' }, 415],
  ['a form', { 'content-type': 'application/x-www-form-urlencoded' }, 415],
  ['a form with files', { 'content-type': 'multipart/form-data; boundary=x' }, 415],
  ['nothing, as of a blob without a type', { 'content-type': '' }, 415],
  ['two types', { 'content-type': 'text/plain, application/json' }, 415],
]

describe('a web page', () => {
  const withPort = (headers: Record<string, string>) =>
    Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, value.replace('PORT', `${front.port}`)]))

  for (const path of ['/mcp', '/v1/sandbox/execute'])
    it.each(pages)(`that sends %s to ${path} is rejected`, async (_what, headers, status) => {
      const answer = await call(withPort(headers), { path })
      expect(statusOf(answer)).toBe(status)
      expect(answer).not.toContain('reached')
      expect(answer.toLowerCase()).not.toContain('access-control-allow')
      expect(runsSince()).toBe(0)
    })

  it('gets no permission when its browser asks first', async () => {
    for (const path of ['/mcp', '/v1/sandbox/execute', '/healthz']) {
      const asks = {
        origin: 'https://page.example',
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'content-type',
        'access-control-request-private-network': 'true',
      }
      const answer = await call(asks, { method: 'OPTIONS', path, body: '' })
      expect(statusOf(answer)).toBeGreaterThanOrEqual(400)
      expect(answer.toLowerCase()).not.toContain('access-control-allow')
    }
  })

  it('changes nothing with a link, an image or a script, even in a browser that sends no Origin', async () => {
    const query = new URLSearchParams({ code: 'print(1)', language: 'python', request: execute })
    for (const path of ['/mcp', '/v1/sandbox/execute', '/', '/message', '/sse', '/api/v1/rpc'])
      for (const method of ['GET', 'HEAD', 'PUT', 'DELETE', 'PATCH']) {
        const plain = rawRequest(method, `${path}?${query}`, { host: `127.0.0.1:${front.port}` })
        await sendRaw(front.port, plain, 300)
      }
    expect(runsSince()).toBe(0)
  })

  it('gains nothing from unusual requests', async () => {
    const host = `host: 127.0.0.1:${front.port}\r\n`
    const tail = `content-type: application/json\r\ncontent-length: ${execute.length}\r\nconnection: close\r\n\r\n${execute}`
    const requests = [
      // Without a host, with a second one, with one in the request line.
      `POST /mcp HTTP/1.1\r\n${tail}`,
      `POST /mcp HTTP/1.0\r\n${tail}`,
      `POST /mcp HTTP/1.1\r\nhost: rebound.example\r\n${host}${tail}`,
      `POST http://127.0.0.1:${front.port}/mcp HTTP/1.1\r\nhost: rebound.example\r\n${tail}`,
      // Forwarding headers: they are for proxies, and there is none here.
      `POST /mcp HTTP/1.1\r\nhost: rebound.example\r\nx-forwarded-host: 127.0.0.1:${front.port}\r\n${tail}`,
      `POST /mcp HTTP/1.1\r\n${host}origin: https://page.example\r\norigin: http://127.0.0.1\r\n${tail}`,
      `GET /mcp HTTP/1.1\r\n${host}x-http-method-override: POST\r\n${tail}`,
      // A second request in the body of a form: its body must be read as a body.
      `POST /mcp HTTP/1.1\r\n${host}content-type: text/plain\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nPOST /mcp HTTP/1.1\r\n${host}${tail}`,
      // What a page can open without a preflight: its first bytes are fixed, and so is its origin.
      `GET /mcp HTTP/1.1\r\n${host}origin: https://page.example\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`,
    ]
    for (const request of requests) {
      const answer = await sendRaw(front.port, request, 2_000)
      expect([request, answer.includes('reached'), statusOf(answer) === 101]).toEqual([request, false, false])
    }
    expect(runsSince()).toBe(0)
  })

  it('cannot be framed, and reads nothing across origins', async () => {
    const answer = (await call({}, { method: 'GET', path: '/healthz', body: '' })).toLowerCase()
    expect(answer).not.toContain('access-control-allow-origin')
    expect(answer).toContain('x-content-type-options: nosniff')
  })
})
