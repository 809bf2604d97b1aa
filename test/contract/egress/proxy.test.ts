import { once } from 'node:events'
import { createServer as createHttp } from 'node:http'
import { createServer, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { beforeAll, describe, expect, it } from 'vitest'
import {
  closeJailsAfterAll,
  connectThrough,
  noLimits,
  openJail,
  received,
  receivedUntil,
  refused,
  serve,
} from '../../support/egress-jail.ts'

const loopback = '127.0.0.0/8:*'
const names = { 'a.test': ['127.0.0.1'], 'b.test': ['127.0.0.1'], 'private.test': ['10.0.0.1'] }
const rules = ['a.test:*', 'b.test:*', 'private.test:*', 'nowhere.test:*', loopback]

describe('the proxy of a jail', () => {
  closeJailsAfterAll()
  let echo: number
  let web: number
  /** What connections to `echo` received first. */
  let seen: string[]
  beforeAll(async () => {
    seen = []
    echo = await serve(
      createServer({ allowHalfOpen: true }, (socket) => {
        socket.on('error', () => undefined)
        socket.once('data', (piece: Buffer) => seen.push(piece.toString('latin1')))
        socket.pipe(socket)
      }),
    )
    web = await serve(
      createHttp((request, response) => {
        const pieces: Buffer[] = []
        request.on('data', (piece: Buffer) => pieces.push(piece))
        request.on('end', () => {
          const { method, url, headers } = request
          response.setHeader('x-answer', '1')
          response.end(JSON.stringify({ method, url, headers, body: Buffer.concat(pieces).toString() }))
        })
      }).on('upgrade', (request, socket) => {
        socket.write(
          `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${request.headers.upgrade}\r\n\r\n`,
        )
        socket.pipe(socket)
      }),
    )
  })

  const tunnelTo = async (authority: string, network: Parameters<typeof openJail>[0] = {}) => {
    const jail = await openJail({ rules, ...network }, names)
    const socket = await jail.dial()
    return { ...jail, socket, answer: await connectThrough(socket, authority) }
  }

  it('tunnels to an allowed destination, and passes on an end without ending the other direction', async () => {
    const { socket, answer } = await tunnelTo(`a.test:${echo}`)
    expect(answer).toMatch(/^HTTP\/1\.1 200 /)
    socket.write('\x00hello')
    expect(await receivedUntil(socket, 'hello')).toBe('\x00hello')
    socket.end('last')
    expect(await received(socket)).toBe('last')
  })

  it('passes on what a server says before the program does', async () => {
    const greeter = await serve(createServer((socket) => void socket.end('220 hello\r\n')))
    const { socket } = await tunnelTo(`a.test:${greeter}`)
    expect(await received(socket)).toBe('220 hello\r\n')
  })

  it('names the policy and the destination when it refuses, in the status line and in the body', async () => {
    const { socket, answer } = await tunnelTo('other.test:443', { policy: 'packages' })
    expect(answer).toMatch(/^HTTP\/1\.1 403 Refused by network policy packages: other\.test:443 is not listed\r\n/)
    expect(`${answer}${await received(socket)}`).toContain(
      '\r\n\r\nnetwork policy packages: other.test:443 is not listed\n',
    )
  })

  it('distinguishes a name without an address and a server that is not there from a refusal', async () => {
    expect((await tunnelTo('nowhere.test:443')).answer).toMatch(/^HTTP\/1\.1 502 .*nowhere\.test cannot be resolved/)
    expect((await tunnelTo('a.test:1')).answer).toMatch(/^HTTP\/1\.1 502 .*a\.test:1 refused the connection/)
    expect((await tunnelTo('private.test:443')).answer).toMatch(/^HTTP\/1\.1 403 .*not at a public address/)
    const packages = { policy: 'packages', rules: ['private.test:*'] } as const
    expect((await tunnelTo('private.test:443', packages)).answer).toContain(
      'packages: private.test:443 is not at a public address, and network_allow does not name its network',
    )
  })

  it('connects to the address that it checked, whatever the name leads to afterwards', async () => {
    const answers = [['127.0.0.1'], ['10.0.0.1']]
    const jail = await openJail({ rules }, { 'a.test': () => answers.shift() ?? [] })
    const first = await jail.dial()
    expect(await connectThrough(first, `a.test:${echo}`)).toMatch(/ 200 /)
    expect(answers).toHaveLength(1)
    first.destroy()
  })

  const helloTo = async (target: string, servername: string | undefined) => {
    const { socket, jail } = await tunnelTo(`${target}:${echo}`)
    const before = seen.length
    const tls = connectTls({ socket, ...(servername !== undefined && { servername }), rejectUnauthorized: false })
    const [error] = (await once(tls, 'error')) as [Error & { code?: string }]
    return { code: error.code, reached: seen.length > before, uses: jail.uses }
  }

  it('requires the name in TLS to be the requested one', async () => {
    // The server is none of TLS: what reaches it comes back.
    expect(await helloTo('a.test', 'a.test')).toMatchObject({ reached: true })
    for (const other of ['b.test', undefined]) {
      const { code, reached, uses } = await helloTo('a.test', other)
      expect({ other, code, reached }).toEqual({ other, code: 'ERR_SSL_TLSV1_ALERT_ACCESS_DENIED', reached: false })
      expect(uses).toContainEqual(expect.objectContaining({ host: 'a.test', verdict: 'refused_name', connections: 1 }))
    }
  })

  const ask = async (lines: string[], body = '', network: Parameters<typeof openJail>[0] = {}) => {
    const { dial, jail } = await openJail({ rules, ...network }, names)
    const socket = await dial()
    socket.write(`${[...lines, 'Connection: close'].join('\r\n')}\r\n\r\n${body}`)
    const answer = await received(socket)
    const [head = '', text = ''] = answer.split('\r\n\r\n')
    const json = text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1)
    return { head, text, uses: jail.uses, got: json === '' ? undefined : JSON.parse(json) }
  }

  it('forwards requests of plain HTTP without what concerns only its own connection', async () => {
    const { head, got } = await ask(
      [
        `POST http://a.test:${web}/path?q=1 HTTP/1.1`,
        'Host: ignored',
        'Proxy-Authorization: Basic x',
        'X-Kept: 1',
        'Content-Length: 4',
      ],
      'body',
    )
    expect(head).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    expect(head).toContain('x-answer: 1')
    expect(got).toMatchObject({
      method: 'POST',
      url: '/path?q=1',
      body: 'body',
      headers: { host: `a.test:${web}`, 'x-kept': '1' },
    })
    expect(got.headers).not.toHaveProperty('proxy-authorization')
  })

  it('refuses requests for other hosts, protocols and addresses in unusual notations', async () => {
    for (const url of ['http://other.test/', 'http://2130706433/', 'http://0x7f.1/', 'http://169.254.169.254/latest/'])
      expect([
        url,
        (await ask([`GET ${url} HTTP/1.1`, 'Host: a.test'], '', { rules: ['a.test'] })).head.slice(0, 12),
      ]).toEqual([url, 'HTTP/1.1 403'])
    expect((await ask(['GET ftp://a.test/ HTTP/1.1', 'Host: a.test'])).head).toMatch(/^HTTP\/1\.1 400 /)
    expect((await ask(['GET / HTTP/1.1', 'Host: a.test'])).head).toMatch(/^HTTP\/1\.1 400 /)
  })

  it('looks at every request in a tunnel of plain HTTP', async () => {
    const { socket } = await tunnelTo(`a.test:${web}`)
    socket.write(`GET /1 HTTP/1.1\r\nHost: a.test:${web}\r\n\r\n`)
    expect(await receivedUntil(socket, '"/1"')).toMatch(/^HTTP\/1\.1 200 /)
    socket.write('GET /2 HTTP/1.1\r\nHost: b.test\r\n\r\n')
    expect(await receivedUntil(socket, 'another host')).toContain('HTTP/1.1 403 ')
  })

  it('allows only the listed methods and paths', async () => {
    const limited = { rules: [`GET a.test:${web}/v1/`, loopback] }
    expect((await ask([`GET http://a.test:${web}/v1/x HTTP/1.1`, 'Host: a.test'], '', limited)).got.url).toBe('/v1/x')
    for (const line of [`POST http://a.test:${web}/v1/x HTTP/1.1`, `GET http://a.test:${web}/v2 HTTP/1.1`])
      expect([line, (await ask([line, 'Host: a.test'], '', limited)).head.slice(0, 12)]).toEqual([line, 'HTTP/1.1 403'])
  })

  it('passes on protocols that begin as a request, such as WebSocket', async () => {
    const { dial } = await openJail({ rules }, names)
    const socket = await dial()
    socket.write(
      `GET http://a.test:${web}/ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
    )
    expect(await receivedUntil(socket, '\r\n\r\n')).toContain('Upgrade: websocket')
    socket.write('frames')
    expect(await receivedUntil(socket, 'frames')).toBe('frames')
  })

  it('speaks SOCKS 5 with names and addresses', async () => {
    const { dial } = await openJail({ rules }, names)
    const socksTo = async (target: Buffer, port: number) => {
      const socket = await dial()
      socket.write(Buffer.from([5, 1, 0]))
      await once(socket, 'readable')
      expect(socket.read()).toEqual(Buffer.from([5, 0]))
      socket.write(Buffer.concat([Buffer.from([5, 1, 0]), target, Buffer.from([port >> 8, port & 255])]))
      await once(socket, 'readable')
      return { socket, reply: (socket.read() as Buffer)[1] }
    }
    const named = (name: string) => Buffer.concat([Buffer.from([3, name.length]), Buffer.from(name)])
    const { socket, reply } = await socksTo(named('a.test'), echo)
    expect(reply).toBe(0)
    socket.write('through')
    expect(await receivedUntil(socket, 'through')).toBe('through')
    expect((await socksTo(named('other.test'), 443)).reply).toBe(2)
    expect((await socksTo(Buffer.from([1, 127, 0, 0, 1]), echo)).reply).toBe(0)
    expect((await socksTo(Buffer.from([4, ...new Array(15).fill(0), 1]), 443)).reply).toBe(2)
    expect((await socksTo(named('nowhere.test'), 443)).reply).toBe(4)
  })

  it('refuses connections that were meant for an address which the policy does not allow', async () => {
    const { jail, port } = await openJail({ rules: ['a.test'] }, names, '127.0.0.9')
    await refused(port, '127.0.0.9')
    expect(jail.uses).toEqual([expect.objectContaining({ host: '127.0.0.9', verdict: 'refused_destination' })])
  })
})

describe('the limits of a jail', () => {
  closeJailsAfterAll()
  const endless = () =>
    createServer((socket: Socket) => {
      socket.on('error', () => undefined)
      const block = Buffer.alloc(64 * 1024)
      const write = () => {
        while (socket.writable && socket.write(block));
      }
      socket.on('drain', write)
      write()
    })

  it('end connections that transfer more bytes than the run may, and refuse further ones', async () => {
    const port = await serve(endless())
    const {
      dial,
      jail,
      port: proxy,
    } = await openJail({
      rules: [loopback],
      limits: { ...noLimits, bytes: 1_000_000 },
    })
    const socket = await dial()
    await connectThrough(socket, `127.0.0.1:${port}`)
    expect((await received(socket)).length).toBeLessThan(1_200_000)
    await refused(proxy)
    expect(jail.uses).toContainEqual(expect.objectContaining({ host: '*', verdict: 'refused_limit' }))
  })

  it('count the names and values of requests, and end idle connections to servers beyond some', {
    timeout: 20_000,
  }, async () => {
    const open = new Set<Socket>()
    let most = 0
    const servers = Array.from({ length: 80 }, () =>
      createHttp((_request, response) => response.end('x')).on('connection', (socket: Socket) => {
        most = Math.max(most, open.add(socket).size)
        socket.once('close', () => open.delete(socket))
      }),
    )
    const ports = await Promise.all(servers.map((server) => serve(server)))
    const limits = { ...noLimits, sentBytes: 80 * 1_200 }
    const { dial, jail } = await openJail({ rules: [loopback], limits })
    const socket = await dial()
    for (const port of ports) {
      socket.write(`GET http://127.0.0.1:${port}/${'a'.repeat(1_000)} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`)
      await receivedUntil(socket, '\r\n\r\n')
    }
    expect(most).toBeLessThan(70)
    expect(jail.counts.sentBytes).toBeGreaterThan(80 * 1_000)
    socket.write(`GET http://127.0.0.1:${ports[0]}/${'a'.repeat(30_000)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`)
    await receivedUntil(socket, 'may be sent')
  })

  it('refuse more connections than the run may have open', async () => {
    const { dial, jail, port } = await openJail({ rules: [loopback], limits: { ...noLimits, connections: 2 } })
    const open = [await dial(), await dial()]
    await refused(port)
    expect(jail.uses).toEqual([expect.objectContaining({ verdict: 'refused_limit', connections: 1 })])
    for (const socket of open) socket.destroy()
  })

  it('hold back a server whose program does not read', async () => {
    let written = 0
    const server = endless().on('connection', (socket: Socket) =>
      socket.on('close', () => (written = socket.bytesWritten)),
    )
    const port = await serve(server)
    const { dial } = await openJail({ rules: [loopback] })
    const socket = await dial()
    await connectThrough(socket, `127.0.0.1:${port}`)
    let before = -1
    // Until nothing more goes anywhere: the buffers on the way are full.
    for (let now = 0; now !== before; now = process.memoryUsage().arrayBuffers) {
      before = now
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    expect(before).toBeLessThan(64 * 1024 * 1024)
    const closed = once(server, 'close')
    socket.destroy()
    server.close()
    await closed
    expect(written).toBeLessThan(64 * 1024 * 1024)
  })

  it('carry 1,000 connections at once', async () => {
    const port = await serve(createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket)))
    const { dial, jail } = await openJail({ rules: [loopback] })
    const sockets = await Promise.all(
      Array.from({ length: 1_000 }, async (_, number) => {
        const socket = await dial()
        await connectThrough(socket, `127.0.0.1:${port}`)
        socket.write(`\x00${number};`)
        expect(await receivedUntil(socket, ';')).toBe(`\x00${number};`)
        return socket
      }),
    )
    expect(jail.uses).toEqual([
      { host: '127.0.0.1', port, verdict: 'allowed', connections: 1_000, bytes: expect.any(Number) },
    ])
    for (const socket of sockets) socket.destroy()
  })
})

describe('another policy', () => {
  closeJailsAfterAll()

  it('holds for new connections, and ends those that it does not allow', async () => {
    const port = await serve(createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket)))
    const both = ['a.test:*', 'b.test:*', loopback]
    const { dial, jail } = await openJail({ rules: both }, names)
    const open = async (name: string) => {
      const socket = await dial()
      return { socket, answer: await connectThrough(socket, `${name}:${port}`) }
    }
    const [a, b] = [await open('a.test'), await open('b.test')]
    b.socket.resume()
    const ended = once(b.socket, 'end')
    jail.change({ policy: 'allow', rules: ['a.test:*', loopback], limits: noLimits })
    await ended
    a.socket.write('still')
    expect(await receivedUntil(a.socket, 'still')).toBe('still')
    expect((await open('b.test')).answer).toMatch(/ 403 /)
  })
})
