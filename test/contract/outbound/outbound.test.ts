import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { AllowedDestinations } from '../../../src/outbound/destination.ts'
import { Outbound, problemOf, type Resolve } from '../../../src/outbound/outbound.ts'

const servers: Server[] = []
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    server.close()
  }
})

async function listen(answer: RequestListener): Promise<number> {
  const server = createServer(answer).listen(0, '127.0.0.1')
  servers.push(server)
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

const never = new AbortController().signal
const post = (
  url: string,
  { allow = ['127.0.0.1'], resolve }: { allow?: string[]; resolve?: Resolve } = {},
  timeoutMs = 20_000,
) =>
  new Outbound(new AllowedDestinations(allow), resolve).post({
    url,
    headers: { 'content-type': 'application/json', 'x-test': 'yes' },
    body: '{"ü":1}',
    timeoutMs,
    signal: never,
  })

describe('an outgoing request', () => {
  it('sends its body, its headers and the host name to the address that was checked', async () => {
    const seen: unknown[] = []
    const port = await listen(async (request, response) => {
      let body = ''
      for await (const piece of request) body += piece
      seen.push([request.method, request.url, request.headers.host, request.headers['x-test'], body])
      response.statusCode = 204
      response.end()
    })
    const resolve = async () => ['127.0.0.1']
    expect(await post(`http://receiver.example:${port}/hook?a=b`, { resolve })).toBe(204)
    expect(seen).toEqual([['POST', '/hook?a=b', `receiver.example:${port}`, 'yes', '{"ü":1}']])
  })

  it('resolves the name once, so that a rebinding name has no effect', async () => {
    let asked = 0
    let reached = 0
    const port = await listen((_request, response) => {
      reached += 1
      response.end()
    })
    const resolve = async () => [asked++ === 0 ? '127.0.0.1' : '169.254.169.254']
    expect(await post(`http://rebinds.example:${port}/`, { resolve })).toBe(200)
    await expect(post(`http://rebinds.example:${port}/`, { resolve })).rejects.toMatchObject({
      code: 'destination_refused',
    })
    expect([asked, reached]).toEqual([2, 1])
  })

  it('is rejected when one of several addresses is not allowed', async () => {
    let reached = 0
    const port = await listen((_request, response) => {
      reached += 1
      response.end()
    })
    for (const addresses of [
      ['127.0.0.1', '10.0.0.1'],
      ['10.0.0.1'],
      ['::ffff:127.0.0.1'],
      ['fe80::1%lo'],
      ['nonsense'],
    ]) {
      await expect(post(`http://many.example:${port}/`, { resolve: async () => addresses })).rejects.toMatchObject({
        code: 'destination_refused',
      })
    }
    await expect(post(`http://localhost:${port}/`, { allow: [] })).rejects.toMatchObject({
      code: 'destination_refused',
    })
    expect(reached).toBe(0)
  })

  it('is rejected in the same way whether a name has an internal address, another one or none', async () => {
    const problemWith = async (resolve: () => Promise<string[]>) => {
      try {
        return String(await post('https://name.example/', { resolve, allow: [] }))
      } catch (error) {
        return problemOf(error)
      }
    }
    const unknown = () => Promise.reject(Object.assign(new Error('getaddrinfo'), { code: 'ENOTFOUND' }))
    const problems = await Promise.all(
      [async () => ['10.0.0.7'], async () => ['::1'], async () => [], unknown].map(problemWith),
    )
    expect(new Set(problems).size).toBe(1)
    expect(problems[0]).toContain('name.example has no address on the public internet')
  })

  it('does not follow redirects', async () => {
    let reached = 0
    const target = await listen((_request, response) => {
      reached += 1
      response.end()
    })
    const port = await listen((_request, response) => {
      response.writeHead(307, { location: `http://127.0.0.1:${target}/` }).end()
    })
    await (await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: 'x' })).arrayBuffer()
    expect(reached).toBe(1)
    expect(await post(`http://127.0.0.1:${port}/`)).toBe(307)
    expect(reached).toBe(1)
  })

  it('reads only the beginning of an endless response', async () => {
    let writtenBytes = 0
    const piece = Buffer.alloc(64 * 1024)
    const port = await listen((_request, response) => {
      const write = () => {
        while (!response.destroyed) {
          writtenBytes += piece.length
          if (!response.write(piece)) return void response.once('drain', write)
        }
      }
      write()
    })
    expect(await post(`http://127.0.0.1:${port}/`)).toBe(200)
    // The capacity of the kernel buffers on both sides, and no more.
    expect(writtenBytes).toBeLessThan(64 * 1024 * 1024)
  })

  it('settles when the receiver switches protocols, or closes without an answer', async () => {
    const port = await listen(() => {})
    servers.at(-1)!.on('upgrade', (_request, socket) => socket.destroy())
    servers.at(-1)!.removeAllListeners('request')
    servers.at(-1)!.on('request', (request) => {
      request.socket.write('HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
    })
    expect(await post(`http://127.0.0.1:${port}/`)).toBe(101)
    const closing = await listen((request) => request.socket.end())
    await expect(post(`http://127.0.0.1:${closing}/`)).rejects.toThrow()
  })

  it('times out on a receiver that never responds, and on a name that never resolves', async () => {
    const port = await listen(() => {})
    const silent = await post(`http://127.0.0.1:${port}/`, {}, 300).catch((error: unknown) => problemOf(error))
    expect(silent).toBe('It did not answer in time.')
    const resolve = () => new Promise<never>(() => {})
    const nameless = await post(`http://slow.example:${port}/`, { resolve }, 300).catch((error: unknown) =>
      problemOf(error),
    )
    expect(nameless).toBe('It did not answer in time.')
  })

  it('reports a refused connection without further details', async () => {
    const port = await listen(() => {})
    const server = servers.pop()!
    server.close()
    await once(server, 'close')
    const problem = await post(`http://127.0.0.1:${port}/`).catch((error: unknown) => problemOf(error))
    expect(problem).toBe('It could not be reached (ECONNREFUSED).')
  })
})
