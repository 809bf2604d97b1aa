import type { IncomingMessage } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Refusal } from '../../src/base/errors.ts'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'
import { RawConnection, rawRequest } from '../support/raw-http.ts'

const bodyBytes = 6 * 1024 * 1024

let front: Front
let host: string
let key: Record<string, string>

beforeAll(async () => {
  front = await openFront(threadsProfile, { dev: false })
  host = `127.0.0.1:${front.port}`
  const { id: org } = await createOrg(front.core.adminContext, operator, 'early')
  key = { 'x-api-key': (await createKey(front.core.adminContext, operator, org, {}, [])).secret }
})
afterAll(() => front.close())

async function uploadPath(id: string, size: number): Promise<string> {
  const response = await front.post('/v1/files/upload', { source: 'thread', id, path: 'f', size }, key)
  const { url } = (await response.json()) as { url: string }
  return new URL(url).pathname
}

const head = (method: string, path: string, headers: Record<string, string>, lengthBytes = bodyBytes) =>
  rawRequest(method, path, { host, connection: 'keep-alive', 'content-length': `${lengthBytes}`, ...headers })
const next = () => rawRequest('GET', '/healthz', { host, connection: 'keep-alive' })

describe('a response that is sent before the body has arrived', () => {
  const json = { 'content-type': 'application/json' }
  const requests: [string, number, () => Promise<[string, string, Record<string, string>]>][] = [
    ['a missing key', 401, async () => ['POST', '/mcp', json]],
    ['a body that is too large', 413, async () => ['POST', '/mcp', { ...json, ...key }]],
    ['a wrong content type', 415, async () => ['POST', '/mcp', { ...key, 'content-type': 'text/plain' }]],
    ['a foreign host', 403, async () => ['POST', '/mcp', { ...json, ...key, 'sec-fetch-site': 'cross-site' }]],
    ['an unknown path', 404, async () => ['POST', '/nothing/here', { ...json, ...key }]],
    ['an unknown method', 405, async () => ['PUT', '/v1/executions', key]],
    ['a GET with a body', 200, async () => ['GET', '/healthz', {}]],
    ['an invalid link', 401, async () => ['PUT', '/v1/blobs/nothing', {}]],
    ['an upload of another size', 413, async () => ['PUT', await uploadPath('other-size', 10), {}]],
  ]

  it.each(requests)('leaves the connection usable: %s', async (_, status, request) => {
    const connection = new RawConnection(front.port)
    await connection.write(head(...(await request())))
    expect((await connection.response())?.status).toBe(status)
    await connection.write(Buffer.alloc(bodyBytes))
    await connection.write(next())
    expect((await connection.response())?.status).toBe(200)
    connection.destroy()
  })

  it('leaves no listener on a connection that is used again', async () => {
    const listeners: number[] = []
    const count = ({ socket }: IncomingMessage) => listeners.push(socket.listenerCount('close'))
    front.app.server.on('request', count)
    const connection = new RawConnection(front.port)
    for (let request = 0; request < 6; request++) {
      await connection.write(head('POST', '/mcp', json, 10))
      expect((await connection.response())?.status).toBe(401)
      await connection.write(Buffer.alloc(10))
    }
    front.app.server.off('request', count)
    connection.destroy()
    // The end of a body can be handled after the head of the next request.
    expect(Math.max(...listeners)).toBeLessThanOrEqual(listeners[0]! + 1)
  })

  it('leaves the connection usable: an upload that is refused midway', async () => {
    const path = await uploadPath('midway', bodyBytes)
    const { files } = front.runner
    const { write } = files
    files.write = async (_where, _path, source) => {
      for await (const _piece of source) throw new Refusal('storage_full')
      return 0
    }
    const connection = new RawConnection(front.port)
    await connection.write(head('PUT', path, {}))
    await connection.write(Buffer.alloc(1024 * 1024))
    expect((await connection.response())?.status).toBe(409)
    await connection.write(Buffer.alloc(bodyBytes - 1024 * 1024))
    await connection.write(next())
    expect((await connection.response())?.status).toBe(200)
    connection.destroy()
    files.write = write
  })

  it('is followed by the end of a connection whose body is larger than what is dropped', async () => {
    const path = await uploadPath('endless', 10)
    const connection = new RawConnection(front.port, true)
    await connection.write(head('PUT', path, {}, 1024 ** 4))
    const response = await connection.response()
    expect([response?.status, /^connection: close/im.test(response?.head ?? '')]).toEqual([413, true])
    const piece = Buffer.alloc(1024 * 1024)
    let sentMiB = 0
    while (sentMiB < 2048 && (await connection.write(piece))) sentMiB += 1
    await connection.closed()
    expect(sentMiB).toBeLessThan(2048)
  })

  it('is followed by the end of a connection whose body does not arrive', async () => {
    const connection = new RawConnection(front.port)
    await connection.write(head('POST', '/mcp', { ...json }))
    expect((await connection.response())?.status).toBe(401)
    await connection.closed()
  })

  it('arrives complete when the client closes its connection after it', async () => {
    const connection = new RawConnection(front.port)
    await connection.write(head('POST', '/mcp', { ...json, ...key, connection: 'close' }))
    await connection.write(Buffer.alloc(bodyBytes))
    expect((await connection.response())?.status).toBe(413)
    await connection.closed()
  })
})
