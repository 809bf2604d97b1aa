import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, request as requestOf, type ServerResponse } from 'node:http'
import { createServer as createHttps } from 'node:https'
import type { Socket } from 'node:net'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, it } from 'vitest'
import type { NetworkSecret } from '../../../src/base/network-secrets.ts'
import type { Authority } from '../../../src/egress/protocol.ts'
import { Leaves, makeAuthority } from '../../../src/egress/secrets/authority.ts'
import {
  closeJailsAfterAll,
  connectThrough,
  openJail,
  received,
  receivedUntil,
  serve,
  type TestJail,
} from '../../support/egress-jail.ts'

const value = 'sk-live/Zq9+"quoted" value'
const placeholder = `GLOVEBOX_SECRET_${'a1'.repeat(16)}`
const otherPlaceholder = `GLOVEBOX_SECRET_${'b2'.repeat(16)}`
const names = { 'api.test': ['127.0.0.1'], 'plain.test': ['127.0.0.1'], 'other.test': ['127.0.0.1'] }

/** What the server received of a request. */
interface Seen {
  method: string
  url: string
  headers: string[]
  body: string
}

const encoders: Record<string, (text: string) => Buffer> = {
  gzip: (text) => gzipSync(text),
  deflate: (text) => deflateSync(text),
  br: (text) => brotliCompressSync(text),
}

describe('secrets of a jail', () => {
  closeJailsAfterAll()
  const seen: Seen[] = []
  let own: Authority
  let outer: Authority
  let port: number
  let plainPort: number

  const answer = (request: IncomingMessage, response: ServerResponse) => {
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      const { method = '', url = '', rawHeaders } = request
      seen.push({ method, url, headers: rawHeaders, body: Buffer.concat(pieces).toString() })
      const encoding = /[?&]as=(\w+)/.exec(url)?.[1]
      if (url.startsWith('/pieces')) {
        response.write(`${value.slice(0, 5)}`)
        setImmediate(() => {
          response.write(value.slice(5, 9))
          setImmediate(() => response.end(`${value.slice(9)} ${value.slice(0, 7)}`))
        })
      } else if (encoding !== undefined) {
        response.setHeader('content-encoding', encoding)
        response.end(encoders[encoding]?.(`{"key":${JSON.stringify(value)}}`) ?? 'unreadable')
      } else {
        response.setHeader('x-echo', value)
        response.end(
          JSON.stringify({ url, authorization: request.headers.authorization, key: request.headers['x-key'] }),
        )
      }
    })
  }
  const upgrade = (request: IncomingMessage, socket: Socket) => {
    const accept = createHash('sha1').update(`${request.headers['sec-websocket-key']}x`).digest('base64')
    seen.push({ method: 'UPGRADE', url: request.url ?? '', headers: request.rawHeaders, body: '' })
    if (request.url === '/no') return void socket.end(`HTTP/1.1 400 No ${value}\r\ncontent-length: 2\r\n\r\nno`)
    socket.write(
      `HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Echo: ${value}\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    )
    socket.pipe(socket)
  }

  beforeAll(async () => {
    own = await makeAuthority()
    outer = await makeAuthority()
    const leaves = new Leaves(outer)
    const contexts = { 'api.test': await leaves.contextFor('api.test') }
    const server = createHttps({
      SNICallback: (_name, done) => done(null, contexts['api.test']),
      ALPNProtocols: ['http/1.1'],
    })
    port = await serve(server.on('request', answer).on('upgrade', upgrade))
    const { createServer } = await import('node:http')
    plainPort = await serve(createServer(answer))
  })

  const secretOf = (more: Partial<NetworkSecret> = {}): NetworkSecret => ({
    ...{ name: 'API_KEY', placeholder, value, hosts: [`api.test:${port}`], places: ['header'] },
    ...more,
  })
  const open = (more: Partial<NetworkSecret> = {}, network: Parameters<typeof openJail>[0] = {}) => {
    const other: NetworkSecret = {
      ...{ name: 'OTHER_KEY', placeholder: otherPlaceholder, value: 'other-value-1234', places: ['header'] },
      hosts: ['other.test:1'],
    }
    const secrets = [secretOf(more), other]
    const rules = ['api.test:*', 'plain.test:*', 'other.test:*', '127.0.0.0/8:*']
    return openJail({ rules, secrets, authority: own, ...network }, names, '127.0.0.1', [outer.certificate])
  }

  /** Opens TLS to a server as a program does that trusts the authority of the jail. */
  const within = async (
    jail: TestJail,
    host = 'api.test',
    servername = host,
    more: object = {},
  ): Promise<TLSSocket> => {
    const socket = await jail.dial()
    expect(await connectThrough(socket, `${host}:${port}`)).toMatch(/^HTTP\/1\.1 200 /)
    const tls = connectTls({ socket, servername, ca: [own.certificate], ...more })
    tls.on('error', () => undefined)
    await new Promise<void>((resolve) => tls.once('secureConnect', () => resolve()).once('close', () => resolve()))
    return tls
  }

  const ask = async (jail: TestJail, lines: string[], body = '') => {
    const tls = await within(jail)
    tls.write(`${[...lines, 'Connection: close'].join('\r\n')}\r\n\r\n${body}`)
    return (await received(tls)).replaceAll(/\r\n[0-9a-f]+\r\n(?=[^\r\n])/g, '')
  }
  const host = 'Host: api.test'
  const last = () => seen.at(-1)!

  it('replaces a placeholder in headers, and the value in the answer', async () => {
    const jail = await open()
    const text = await ask(jail, [
      'GET /a?b=c HTTP/1.1',
      host,
      `Authorization: Bearer ${placeholder}`,
      `X-Key: ${placeholder}`,
    ])
    expect(last().headers.join('\n')).toContain(`Bearer ${value}`)
    expect(last().url).toBe('/a?b=c')
    expect(text).toMatch(/^HTTP\/1\.1 200 /)
    expect(text.toLowerCase()).toContain(`x-echo: ${placeholder.toLowerCase()}`)
    expect(text).toContain(`"Bearer ${placeholder}"`)
    expect(text).not.toContain('sk-live')
    expect(jail.jail.uses).toMatchObject([{ host: 'api.test', verdict: 'allowed', connections: 1 }])
  })

  it('replaces it in the query and in basic authentication where this is configured', async () => {
    const jail = await open({ places: ['query', 'basic'] })
    const credentials = Buffer.from(`user:${placeholder}`).toString('base64')
    const text = await ask(jail, [`GET /?key=${placeholder} HTTP/1.1`, host, `Authorization: Basic ${credentials}`])
    expect(last().url).toBe(`/?key=${encodeURIComponent(value)}`)
    const sent = Buffer.from(`user:${value}`).toString('base64')
    expect(last().headers).toContain(`Basic ${sent}`)
    expect(text).toContain(`/?key=${placeholder}`)
    expect(text).toContain(`Basic ${credentials}`)
    expect(text).not.toContain(sent)
  })

  it('replaces a value that the server sends in pieces or compressed, and refuses what it cannot read', async () => {
    const jail = await open()
    const get = (path: string) => ask(jail, [`GET ${path} HTTP/1.1`, host, 'Accept-Encoding: gzip', 'Range: bytes=0-3'])
    const pieces = await get('/pieces')
    expect(pieces).toContain(placeholder)
    expect(pieces).not.toContain('quoted')
    expect(last().headers.join('\n')).toMatch(/Accept-Encoding\nidentity/)
    expect(last().headers.join('\n')).not.toContain('Range')
    for (const encoding of Object.keys(encoders)) {
      const text = await get(`/?as=${encoding}`)
      expect({ encoding, text }).toEqual({ encoding, text: expect.stringContaining(`{"key":"${placeholder}"}`) })
    }
    expect(await get('/?as=compress')).toMatch(/^HTTP\/1\.1 502 .*encoding that cannot be read/)
  })

  it.each([
    ['the path', [`GET /a/${placeholder} HTTP/1.1`], ''],
    ['an encoded path', [`GET /a/${placeholder.replace('_', '%5F')} HTTP/1.1`], ''],
    ['the query', [`GET /?a=${placeholder} HTTP/1.1`], ''],
    [
      'basic authentication',
      ['GET / HTTP/1.1', `Authorization: Basic ${Buffer.from(`u:${placeholder}`).toString('base64')}`],
      '',
    ],
    ['the name of a header', ['GET / HTTP/1.1', `${placeholder}: 1`], ''],
    ['a header of another server', ['GET / HTTP/1.1', `X-Key: ${otherPlaceholder}`], ''],
    ['a body', ['POST / HTTP/1.1', `Content-Length: ${placeholder.length}`], placeholder],
    [
      'a body in chunks',
      ['POST / HTTP/1.1', 'Transfer-Encoding: chunked'],
      `18\r\n${placeholder.slice(0, 24)}\r\n18\r\n${placeholder.slice(24)}\r\n0\r\n\r\n`,
    ],
  ])('refuses a placeholder in %s', async (_where, [line = '', ...headers], body) => {
    const jail = await open()
    const before = seen.length
    const text = await ask(jail, [line, host, ...headers], body)
    expect(text).toMatch(/^HTTP\/1\.1 403 Refused by network secrets: /)
    expect(text).not.toContain('sk-live')
    expect(seen.length).toBe(before)
    expect(jail.jail.uses).toContainEqual(
      expect.objectContaining({ host: 'api.test', verdict: 'refused_secret', connections: 1 }),
    )
  })

  const plainly = async (jail: TestJail, url: string, headers: Record<string, string>) => {
    const sent = requestOf({ host: '127.0.0.1', port: jail.port, path: url, headers, agent: false }).end()
    const [response] = (await once(sent, 'response')) as [IncomingMessage]
    return { status: response.statusCode, text: await received(response as unknown as Socket) }
  }

  it('sends a secret without TLS only where this is configured', async () => {
    const url = `http://plain.test:${plainPort}/`
    const refusing = await open({ hosts: [`plain.test:${plainPort}`] })
    expect(await plainly(refusing, url, { 'x-key': placeholder })).toMatchObject({ status: 403 })
    const allowing = await open({ hosts: [`http://plain.test:${plainPort}`] })
    const { status, text } = await plainly(allowing, url, { 'x-key': placeholder })
    expect(status).toBe(200)
    expect(last().headers).toContain(value)
    expect(text).not.toContain('sk-live')
  })

  it('finds placeholders in names and in connections of other protocols, also where every address is allowed', async () => {
    const jail = await open({}, { policy: 'public', rules: ['127.0.0.0/8:*'] })
    const named = await jail.dial()
    expect(await connectThrough(named, `${placeholder.toLowerCase()}.test:443`)).toMatch(
      / 403 Refused by network secrets/,
    )
    expect(jail.jail.allowsQuery(`x.${placeholder.toLowerCase()}.test`)).toBe(false)
    const raw = await jail.dial()
    await connectThrough(raw, `other.test:${plainPort}`)
    raw.write(`\x00${placeholder.slice(0, 20)}`)
    raw.write(placeholder.slice(20))
    await received(raw)
    const http = await jail.dial()
    await connectThrough(http, `127.0.0.1:${plainPort}`)
    http.write(`GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Key: ${placeholder}\r\n\r\n`)
    expect(await receivedUntil(http, '\r\n\r\n')).toMatch(/^HTTP\/1\.1 403 /)
    http.destroy()
    const refusedAt = jail.jail.uses.filter(({ verdict }) => verdict === 'refused_secret').map(({ port: at }) => at)
    expect(refusedAt.sort((a, b) => a - b)).toEqual([53, 443, plainPort, plainPort])
  })

  it('requires the name in TLS and in the Host header to be the requested one, and its certificate to be valid', async () => {
    const jail = await open()
    for (const servername of ['other.test', '']) {
      const tls = await within(jail, 'api.test', servername, { checkServerIdentity: () => undefined })
      if (tls.destroyed) continue
      tls.write(`GET /named HTTP/1.1\r\n${host}\r\n\r\n`)
      expect(await received(tls)).toBe('')
      tls.destroy()
    }
    expect(jail.jail.uses).toContainEqual(expect.objectContaining({ verdict: 'refused_name', connections: 2 }))
    const before = seen.length
    expect(await ask(jail, ['GET / HTTP/1.1', 'Host: other.test', `X-Key: ${placeholder}`])).toMatch(/^HTTP\/1\.1 403 /)
    expect(await ask(jail, ['GET https://other.test/ HTTP/1.1', host, `X-Key: ${placeholder}`])).toMatch(
      /^HTTP\/1\.1 400 /,
    )
    expect(await ask(jail, ['GET http://other.test/ HTTP/1.1', host, `X-Key: ${placeholder}`])).toMatch(
      /^HTTP\/1\.1 400 /,
    )
    expect(seen.length).toBe(before)
    const wrong = await openJail(
      { rules: ['api.test:*', '127.0.0.0/8:*'], secrets: [secretOf()], authority: own },
      names,
      '127.0.0.1',
      [own.certificate],
    )
    expect(await ask(wrong, ['GET / HTTP/1.1', host, `X-Key: ${placeholder}`])).toMatch(
      /^HTTP\/1\.1 502 .*no valid certificate/,
    )
    expect(seen.length).toBe(before)
  })

  it.each([
    [
      'both lengths',
      ['POST / HTTP/1.1', host, 'Content-Length: 4', 'Transfer-Encoding: chunked'],
      '0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: api.test\r\n\r\n',
    ],
    [
      'two lengths',
      ['POST / HTTP/1.1', host, 'Content-Length: 0', 'Content-Length: 44'],
      'GET /smuggled HTTP/1.1\r\nHost: api.test\r\n\r\n',
    ],
    ['a line feed in a header', ['GET / HTTP/1.1', host, 'X-Key: a\nX-Other: b\r\rc'], ''],
    ['a space before the colon', ['GET / HTTP/1.1', host, 'X-Key : a'], ''],
    ['a header that is too large', ['GET / HTTP/1.1', host, `X-Key: ${'a'.repeat(70_000)}`], ''],
  ])('refuses a request with %s', async (_what, lines, body) => {
    const jail = await open()
    const before = seen.length
    expect(await ask(jail, lines, body)).toMatch(/^HTTP\/1\.1 4\d\d /)
    expect(seen.slice(before).map(({ url }) => url)).not.toContain('/smuggled')
  })

  it('sends one Host header, that of the connection', async () => {
    await ask(await open(), ['GET / HTTP/1.1', host, 'Host: other.test', `X-Key: ${placeholder}`])
    expect(last().headers.filter((_, i, all) => all[i - 1]?.toLowerCase() === 'host' && i % 2 === 1)).toEqual([
      'api.test',
    ])
  })

  it('keeps connections alive, offers HTTP/1.1 alone, and waits with a body until the server asks for it', async () => {
    const tls = await within(await open(), 'api.test', 'api.test', { ALPNProtocols: ['h2', 'http/1.1'] })
    expect(tls.alpnProtocol).toBe('http/1.1')
    for (const path of ['/1', '/2']) {
      tls.write(`GET ${path} HTTP/1.1\r\n${host}\r\nX-Key: ${placeholder}\r\n\r\n`)
      expect(await receivedUntil(tls, '0\r\n\r\n')).toContain(`"url":"${path}"`)
    }
    tls.write(`POST /3 HTTP/1.1\r\n${host}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n`)
    expect(await receivedUntil(tls, '\r\n\r\n')).toMatch(/^HTTP\/1\.1 100 /)
    tls.write('body')
    expect(await receivedUntil(tls, '0\r\n\r\n')).toContain('"url":"/3"')
    expect(last().body).toBe('body')
    tls.destroy()
  })

  it('passes on a WebSocket, and ends it when the server sends the value', async () => {
    const jail = await open()
    const dialed = async (path: string) => {
      const tls = await within(jail)
      tls.write(
        `GET ${path} HTTP/1.1\r\n${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Extensions: permessage-deflate\r\nAuthorization: Bearer ${placeholder}\r\n\r\n`,
      )
      return tls
    }
    const tls = await dialed('/socket')
    const head = await receivedUntil(tls, '\r\n\r\n')
    expect(head).toMatch(/^HTTP\/1\.1 101 /)
    expect(head).toContain(placeholder)
    expect(head).not.toContain('sk-live')
    expect(last().headers).toContain(`Bearer ${value}`)
    expect(last().headers.join('\n')).not.toContain('permessage-deflate')
    tls.write('frame')
    expect(await receivedUntil(tls, 'frame')).toBe('frame')
    tls.write(value.slice(0, 6))
    tls.write(value.slice(6))
    expect(await received(tls)).not.toContain(value)
    const refused = await received(await dialed('/no'))
    expect(refused).toMatch(/^HTTP\/1\.1 400 /)
    expect(refused).not.toContain('sk-live')
  })

  it('follows a changed secret at once, and ends connections of a server that receives none any more', async () => {
    const jail = await open()
    const rules = ['api.test:*', '127.0.0.0/8:*']
    const limits = { connections: 4096, bytes: 0, bytesPerSecond: 0 }
    const tls = await within(jail)
    const get = async () => {
      tls.write(`GET / HTTP/1.1\r\n${host}\r\nX-Key: ${placeholder}\r\n\r\n`)
      await receivedUntil(tls, '0\r\n\r\n')
      return last().headers.join('\n')
    }
    expect(await get()).toContain(value)
    jail.jail.change({ policy: 'allow', rules, limits, secrets: [secretOf({ value: 'the-new-value' })] })
    expect(await get()).toContain('the-new-value')
    jail.jail.change({ policy: 'allow', rules, limits, secrets: [] })
    expect(await received(tls)).toBe('')
  })

  it('opens TLS to no other server', async () => {
    const jail = await open()
    const socket = await jail.dial()
    await connectThrough(socket, `other.test:${port}`)
    const tls = connectTls({
      socket,
      servername: 'other.test',
      ca: [outer.certificate],
      checkServerIdentity: () => undefined,
    })
    await once(tls, 'secureConnect')
    expect(tls.getPeerCertificate().subjectaltname).toBe('DNS:api.test')
    tls.destroy()
  })
})
