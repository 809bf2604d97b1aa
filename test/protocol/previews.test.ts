import { once } from 'node:events'
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net'
import { buffer, text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey, revokeKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { productInventory } from '../../src/tools/catalog.ts'
import { type Front, openFront } from '../support/front.ts'

/*
 * Servers of this machine stand for those of a sandbox; `test/contract/runner/sandbox-ports.test.ts` reaches real ones.
 */

interface Published {
  port: number
  access: string
  url: string
  open_url: string
  expires_at: string
}

interface Received {
  status: number
  headers: IncomingMessage['headers']
  raw: string[]
  body: string
}

const toolNames = productInventory.tools.map(({ name }) => name)
const domain = 'preview.test'
let front: Front
let org: string
let key: { id: string; secret: string }
const servers: { close(): void }[] = []

beforeAll(async () => {
  front = await openFront(undefined, { dev: false, previewDomain: domain, allowedHosts: ['front.test'] })
  org = (await createOrg(front.core.adminContext, operator, 'previews')).id
  key = await newKey()
  await api('POST', '/v1/sandboxes', { name: 'web' })
})
afterAll(async () => {
  for (const server of servers) server.close()
  await front.close()
})

const newKey = async (orgId = org) => {
  const { id, secret } = await createKey(front.core.adminContext, operator, orgId, {}, toolNames)
  return { id, secret }
}

async function api(method: string, path: string, body?: object, secret = key.secret) {
  const response = await fetch(front.url + path, {
    method,
    headers: { 'x-api-key': secret, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  })
  const answer = await response.text()
  return { status: response.status, body: answer === '' ? null : JSON.parse(answer) }
}

/** Starts a server and publishes its port. */
async function serve(
  handle: (request: IncomingMessage, response: ServerResponse) => void,
  options: { access?: string; expires_in?: number } = { access: 'public' },
): Promise<Published & { server: Server; label: string; path: string; host: string }> {
  const server = createServer(handle)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  servers.push(server)
  return { server, ...(await publish((server.address() as AddressInfo).port, options)) }
}

async function publish(port: number, options: object) {
  const { status, body } = await api('POST', '/v1/sandboxes/web/ports', { port, ...options })
  expect(status).toBe(201)
  const label = /-([0-9a-f]{48})\./.exec(body.url)![1]!
  return { ...(body as Published), label, path: `/preview/${label}/`, host: `${port}-${label}.${domain}` }
}

/** Sends a request to the front as it is. */
async function send(
  path: string,
  {
    method = 'GET',
    host = 'front.test',
    headers = {},
    body = '',
  }: {
    method?: string
    host?: string
    headers?: Record<string, string | string[]>
    body?: string
  } = {},
): Promise<Received> {
  const sent = request({
    host: '127.0.0.1',
    port: front.port,
    path,
    method,
    headers: { host, ...headers },
    agent: false,
  })
  if (body !== '') sent.setHeader('content-length', body.length)
  sent.end(body)
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  return {
    status: response.statusCode!,
    headers: response.headers,
    raw: response.rawHeaders,
    body: await text(response),
  }
}

const echo = (request: IncomingMessage, response: ServerResponse) => {
  const { method, url, headers } = request
  void text(request).then((body) => response.end(JSON.stringify({ method, url, headers, body })))
}

describe('a published port', () => {
  it('is reached with any method, path and body, below a path and on a host name', async () => {
    const { path, host, url } = await serve(echo)
    expect(url).toBe(`http://${host}/`)
    for (const [place, base] of [
      ['front.test', path],
      [host, '/'],
    ] as const) {
      for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'PROPFIND']) {
        const body = method === 'GET' ? '' : 'some text'
        const answer = await send(`${base}a/..%2fb?c=%20`, {
          method,
          host: place,
          body,
          headers: { 'content-type': 'x/y' },
        })
        expect(answer.status).toBe(200)
        expect(JSON.parse(answer.body)).toMatchObject({ method, url: '/a/..%2fb?c=%20', body })
      }
      expect(await send(base, { method: 'HEAD', host: place })).toMatchObject({ status: 200, body: '' })
    }
  })

  it('receives how it was reached, and none of the credentials of this server', async () => {
    const { path, host, port } = await serve(echo)
    const headers = {
      ...{
        'x-api-key': key.secret,
        authorization: `Bearer ${key.secret}`,
        cookie: 'a=1; glovebox_preview=x; glovebox-login=y; __Host-glovebox-login=z; b=2',
      },
      ...{
        'x-forwarded-for': '192.0.2.7',
        forwarded: 'for=192.0.2.7',
        connection: 'x-named',
        'x-named': 'dropped',
        te: 'trailers',
      },
    }
    const below = JSON.parse((await send(path, { headers })).body).headers
    expect(below).toEqual({
      ...{
        host: `localhost:${port}`,
        connection: 'close',
        'x-forwarded-for': '127.0.0.1',
        'x-forwarded-proto': 'http',
      },
      ...{ 'x-forwarded-host': 'front.test', 'x-forwarded-prefix': path.slice(0, -1) },
    })
    const own = JSON.parse((await send('/', { host, headers })).body).headers
    expect(own).toMatchObject({ cookie: 'a=1; b=2', 'x-forwarded-host': host })
    expect(JSON.stringify(own)).not.toContain(key.secret)
    // A program may have bearer tokens of its own.
    const tokens = JSON.parse((await send(path, { headers: { authorization: 'Bearer mine' } })).body).headers
    expect(tokens.authorization).toBe('Bearer mine')
    const basic = JSON.parse((await send(path, { headers: { authorization: 'Basic eDp5' } })).body).headers
    expect(basic.authorization).toBeUndefined()
  })

  it('gives its pages no power over the origin of this server', async () => {
    const { path, host } = await serve((_request, response) => {
      response.writeHead(200, [
        ...['Set-Cookie', 'session=1; Domain=test; Path=/', 'Set-Cookie', 'glovebox_preview=forged'],
        ...['Service-Worker-Allowed', '/', 'Clear-Site-Data', '"*"', 'Strict-Transport-Security', 'max-age=1'],
        ...[
          'Alt-Svc',
          'h3=":1"',
          'WWW-Authenticate',
          'Basic realm="x"',
          'Content-Security-Policy',
          "default-src 'self'",
        ],
        ...['Access-Control-Allow-Origin', 'http://front.test', 'Access-Control-Allow-Credentials', 'true'],
      ])
      response.end('page')
    })
    const below = await send(path)
    expect(below.headers['content-security-policy']).toMatch(/default-src 'self', sandbox allow-scripts/)
    expect(below.headers['content-security-policy']).not.toContain('allow-same-origin')
    expect(below.headers['access-control-allow-origin']).toBe('*')
    const own = await send('/', { host })
    expect(own.headers['set-cookie']).toEqual(['session=1; Path=/'])
    expect(own.headers['www-authenticate']).toBe('Basic realm="x"')
    for (const { headers } of [below, own])
      for (const name of ['service-worker-allowed', 'clear-site-data', 'strict-transport-security', 'alt-svc'])
        expect(headers[name]).toBeUndefined()
    for (const name of ['set-cookie', 'www-authenticate', 'access-control-allow-credentials'])
      expect(below.headers[name]).toBeUndefined()
    expect((await send(`${path}worker.js`, { headers: { 'service-worker': 'script' } })).status).toBe(400)
    const preflight = await send(path, {
      method: 'OPTIONS',
      headers: { origin: 'null', 'access-control-request-method': 'PUT', 'access-control-request-headers': 'x-one' },
    })
    expect(preflight).toMatchObject({
      status: 204,
      headers: { 'access-control-allow-methods': 'PUT', 'access-control-allow-headers': 'x-one' },
    })
  })

  it('keeps redirects of its server in the preview', async () => {
    const { path, host, port } = await serve((request, response) => {
      const to = decodeURIComponent(request.url!.slice(2))
      response.writeHead(302, { location: to }).end()
    })
    const locationOf = async (to: string, at = path, place = 'front.test') =>
      (await send(`${at}?${encodeURIComponent(to)}`, { host: place })).headers.location
    expect(await locationOf('/login')).toBe(`${path}login`)
    expect(await locationOf(`http://localhost:${port}/a?b`)).toBe(`${path}a?b`)
    expect(await locationOf('relative')).toBe('relative')
    expect(await locationOf('https://other.test/')).toBe('https://other.test/')
    expect(await locationOf('/login', '/', host)).toBe('/login')
    expect(await locationOf(`http://127.0.0.1:${port}`, '/', host)).toBe('/')
    expect((await send(path.slice(0, -1))).headers.location).toBe(path)
  })

  it('passes on each piece of a response when it arrives', async () => {
    const waiting = Promise.withResolvers<ServerResponse>()
    const { path } = await serve((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: 1\n\n')
      waiting.resolve(response)
    })
    const response = await fetch(front.url + path)
    const reader = response.body!.getReader()
    expect(Buffer.from((await reader.read()).value!).toString()).toBe('data: 1\n\n')
    const stream = await waiting.promise
    stream.write('data: 2\n\n')
    expect(Buffer.from((await reader.read()).value!).toString()).toBe('data: 2\n\n')
    const closed = once(stream, 'close')
    await reader.cancel()
    await closed
  })

  it('carries large bodies both ways unchanged', async () => {
    const { path } = await serve((request, response) => request.pipe(response))
    const sent = Buffer.alloc(24 * 1024 * 1024, 'large body ')
    const response = await fetch(front.url + path, { method: 'POST', body: sent })
    expect((await buffer(response.body!)).equals(sent)).toBe(true)
  })

  it('carries WebSockets, and each end of them on its own', async () => {
    const { path, server, host } = await serve(echo)
    server.on('upgrade', (request, socket: Socket, head) => {
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\nX-Path: ${request.url}\r\n\r\n`,
      )
      socket.write(head)
      socket.pipe(socket)
    })
    for (const [at, place] of [
      [path, 'front.test'],
      ['/', host],
    ] as const) {
      const socket = connect({ host: '127.0.0.1', port: front.port, allowHalfOpen: true })
      socket.write(`GET ${at}ws HTTP/1.1\r\nHost: ${place}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst,`)
      socket.end('last')
      const answer = await text(socket)
      expect(answer).toContain('101 Switching Protocols\r\n')
      expect(answer).toContain('X-Path: /ws')
      expect(answer.split('\r\n\r\n')[1]).toBe('first,last')
    }
  })

  it('answers an upgrade that its server ignores as a request', async () => {
    const { path } = await serve(echo)
    const headers = { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': 'AAMAAABkAAQAAP__' }
    const plain = await send(path, { method: 'POST', body: 'kept', headers })
    expect(JSON.parse(plain.body)).toMatchObject({ body: 'kept', headers: { connection: 'close' } })
    expect((await send(path, { headers: { connection: 'Upgrade', upgrade: 'other' } })).status).toBe(200)
  })

  it('relays nothing that two parsers could read differently', async () => {
    const { path } = await serve(echo)
    for (const lines of [
      'Content-Length: 4\r\nTransfer-Encoding: chunked',
      'Content-Length: 4\r\nContent-Length: 5',
      'Host: x',
    ]) {
      const socket = connect({ host: '127.0.0.1', port: front.port })
      socket.write(`POST ${path} HTTP/1.1\r\nHost: front.test\r\n${lines}\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n`)
      expect(await text(socket)).toMatch(/^HTTP\/1.1 400/)
    }
    const chunked = connect({ host: '127.0.0.1', port: front.port })
    chunked.write(
      `DELETE ${path} HTTP/1.1\r\nHost: front.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n`,
    )
    chunked.write('13\r\nGET /x HTTP/1.1\r\n\r\n\r\n0\r\n\r\n')
    expect(await text(chunked)).toContain(JSON.stringify('GET /x HTTP/1.1\r\n\r\n').slice(1, -5))
    // A server of a sandbox that sends more than one response.
    const server = createTcpServer((socket) => {
      socket.on('error', () => undefined)
      socket.once('data', () =>
        socket.end('HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb'),
      )
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    servers.push(server)
    const published = await publish((server.address() as AddressInfo).port, { access: 'public' })
    expect(await send(published.path)).toMatchObject({ status: 200, body: 'a' })
  })
})

/** Changes the last character. */
const altered = (grant: string) => `${grant.slice(0, -1)}${grant.endsWith('0') ? '1' : '0'}`

describe('the access to a published port', () => {
  it('is for keys of its organization and signed links, unless it is public', async () => {
    const { path, host, open_url: openUrl, label } = await serve(echo, {})
    expect((await send(path)).status).toBe(401)
    expect((await send('/', { host })).status).toBe(401)
    for (const headers of [{ 'x-api-key': key.secret }, { authorization: `Bearer ${key.secret}` }]) {
      const answer = await send(path, { headers })
      expect(answer.status).toBe(200)
      expect(answer.body).not.toContain(key.secret)
    }
    const other = await newKey((await createOrg(front.core.adminContext, operator, 'others')).id)
    expect((await send(path, { headers: { 'x-api-key': other.secret } })).status).toBe(401)
    // The signed link of a host name sets a cookie of this host name alone.
    const opened = new URL(openUrl)
    expect(opened.host).toBe(host)
    const set = await send(`${opened.pathname}${opened.search}&a=1`, { host })
    expect(set).toMatchObject({ status: 303, headers: { location: '/?a=1' } })
    const [cookie] = set.headers['set-cookie']!
    expect(cookie).toMatch(/^glovebox_preview=[\w-]+; Path=\/; HttpOnly; SameSite=Lax$/)
    const answer = await send('/', { host, headers: { cookie: cookie!.split(';')[0]! } })
    expect(answer.status).toBe(200)
    expect(answer.body).not.toContain('glovebox_preview')
    // As a page of another preview can add it, for the domain that they share.
    const added = `glovebox_preview=0-key_x-0; ${cookie!.split(';')[0]!}; glovebox_preview=`
    expect((await send('/', { host, headers: { cookie: added } })).status).toBe(200)
    const grant = opened.searchParams.get('glovebox_grant')!
    expect((await send(`/preview/${label}~${grant}/`)).status).toBe(200)
    expect((await send(`/preview/${label}~${altered(grant)}/`)).status).toBe(401)
    const { path: elsewhere } = await serve(echo, {})
    expect((await send(elsewhere.replace(/\/$/, `~${grant}/`))).status).toBe(401)
  })

  it('ends when it is withdrawn, with its open connections', async () => {
    const waiting = Promise.withResolvers<ServerResponse>()
    const { path, port } = await serve((_request, response) => {
      response.write('begun')
      waiting.resolve(response)
    })
    const response = await fetch(front.url + path)
    const stream = await waiting.promise
    const closed = once(stream, 'close')
    expect((await api('DELETE', `/v1/sandboxes/web/ports/${port}`)).status).toBe(204)
    await closed
    await expect(response.text()).rejects.toThrow()
    expect((await send(path)).status).toBe(404)
    expect((await api('DELETE', `/v1/sandboxes/web/ports/${port}`)).body.code).toBe('port_unpublished')
  })

  it('ends with the key that published it, also for open connections', async () => {
    const publisher = await newKey()
    const waiting = Promise.withResolvers<ServerResponse>()
    const { path, port } = await serve((_request, response) => {
      response.write('begun')
      waiting.resolve(response)
    })
    await api('POST', '/v1/sandboxes/web/ports', { port, access: 'public' }, publisher.secret)
    const response = await fetch(front.url + path)
    const closed = once(await waiting.promise, 'close')
    await revokeKey(front.core.adminContext, operator, org, publisher.id)
    expect((await send(path)).status).toBe(404)
    await closed
    await expect(response.text()).rejects.toThrow()
  })

  it('ends with the key of a visitor, and with the key that gave its signed link, also for open connections', async () => {
    const [visitor, giver] = [await newKey(), await newKey()]
    const answered: Promise<unknown>[] = []
    const { path, port, server } = await serve((_request, response) => {
      response.write('begun')
      answered.push(once(response, 'close'))
    }, {})
    server.on('upgrade', (_request, socket: Socket) => {
      answered.push(new Promise((resolve) => socket.once('close', resolve)))
      socket.on('error', () => undefined)
      // More than a connection holds for a visitor who reads nothing.
      socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n')
      socket.write(Buffer.alloc(16 * 1024 * 1024))
    })
    const { data } = (await api('GET', '/v1/sandboxes/web/ports', undefined, giver.secret)).body
    const { open_url: link } = (data as Published[]).find((one) => one.port === port)!
    const below = `${path.slice(0, -1)}~${new URL(link).searchParams.get('glovebox_grant')}/`
    const bearer = { authorization: `Bearer ${visitor.secret}` }
    const opened = [await fetch(front.url + path, { headers: bearer }), await fetch(front.url + below)]
    const sockets = [`GET ${path} HTTP/1.1\r\nAuthorization: Bearer ${visitor.secret}`, `GET ${below} HTTP/1.1`].map(
      (head) => {
        const socket = connect({ host: '127.0.0.1', port: front.port })
        socket.on('error', () => undefined)
        socket.write(`${head}\r\nHost: front.test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n`)
        return socket
      },
    )
    await Promise.all(sockets.map((socket) => once(socket, 'readable')))
    expect(answered).toHaveLength(4)
    const kept = await fetch(front.url + path, { headers: { 'x-api-key': key.secret } })
    for (const { id } of [visitor, giver]) await revokeKey(front.core.adminContext, operator, org, id)
    await Promise.all(answered.slice(0, 4))
    for (const response of opened) await expect(response.text()).rejects.toThrow()
    await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.resume().once('close', resolve))))
    expect((await send(below)).status).toBe(401)
    expect((await send(path, { headers: bearer })).status).toBe(401)
    const reader = kept.body!.getReader()
    expect(Buffer.from((await reader.read()).value!).toString()).toBe('begun')
    await reader.cancel()
  })

  it('is refused for addresses that were not signed here, and never reaches other routes', async () => {
    const { label, port, host } = await serve(echo)
    const forged = label.replace(/.$/, (last) => (last === '0' ? '1' : '0'))
    expect((await send(`/preview/${forged}/`)).status).toBe(404)
    expect((await send('/health', { host: `${port}-${forged}.${domain}` })).status).toBe(404)
    expect((await send('/', { host: host.replace(/^\d+/, '1') })).status).toBe(404)
    expect(JSON.parse((await send('/v1/sandboxes', { host })).body).url).toBe('/v1/sandboxes')
  })

  it('says why there is no response', async () => {
    const { server, path } = await serve((request) => request.socket.destroy())
    expect(await send(path)).toMatchObject({ status: 502, body: expect.stringContaining('closed the connection') })
    server.close()
    server.closeAllConnections()
    await once(server, 'close')
    expect(await send(path)).toMatchObject({
      status: 502,
      body: expect.stringContaining('Nothing accepts connections'),
    })
    await api('POST', '/v1/sandboxes/web/stop', {})
    expect(await send(path)).toMatchObject({ status: 409, body: expect.stringContaining('web') })
    await api('POST', '/v1/sandboxes/web/start', {})
  })

  it('is counted by outcome', async () => {
    const { path } = await serve(echo)
    const count = async (outcome: string) => {
      const text = await front.metrics.text(undefined)
      return Number(
        new RegExp(`^glovebox_preview_requests_total\\{outcome="${outcome}"\\} (\\d+)$`, 'm').exec(text)?.[1] ?? 0,
      )
    }
    const before = [await count('relayed'), await count('preview_invalid')] as const
    await send(path)
    await send(`/preview/${'0'.repeat(48)}/made-up`)
    expect([await count('relayed'), await count('preview_invalid')]).toEqual([before[0] + 1, before[1] + 1])
    expect(await front.metrics.text(undefined)).not.toContain('made-up')
  })

  it('keeps its address when it is published again, and is listed until its sandbox is deleted', async () => {
    await api('POST', '/v1/sandboxes', { name: 'listed' })
    const ports = '/v1/sandboxes/listed/ports'
    const first = await api('POST', ports, { port: 8080 })
    const again = await api('POST', ports, { port: 8080, access: 'public', expires_in: 60 })
    expect(again.body).toMatchObject({ url: first.body.url, access: 'public', open_url: first.body.url })
    expect((await api('GET', ports)).body).toEqual({ data: [again.body] })
    expect((await api('POST', ports, { port: 3128 })).body.code).toBe('invalid_argument')
    for (let port = 1; port < 32; port++) expect((await api('POST', ports, { port: 9000 + port })).status).toBe(201)
    expect((await api('POST', ports, { port: 9999 })).body.code).toBe('ports_full')
    await api('DELETE', '/v1/sandboxes/listed')
    const host = new URL(first.body.url).host
    expect((await send('/', { host })).status).toBe(404)
  })
})
