import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server } from 'node:net'
import type { Duplex } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { PreviewConnections } from '../../../src/core/sandboxes/ports/connections.ts'
import { noPreviewLimits, type PreviewLimits, PreviewTraffic } from '../../../src/core/sandboxes/ports/traffic.ts'
import { Metrics } from '../../../src/observe/metrics.ts'

let server: Server
beforeAll(async () => {
  server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => socket.destroy())
    socket.pipe(socket)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
})
afterAll(() => void server.close())

/** Opens connections to a server that returns what it gets. */
function previews(limits: Partial<PreviewLimits>) {
  const metrics = new Metrics()
  const connections = new PreviewConnections(metrics.previews, { ...noPreviewLimits, ...limits })
  const open = (keyId: string, orgId = 'org_a'): Promise<Duplex> => {
    const { port } = server.address() as AddressInfo
    const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true })
    const owners = { portId: `port of ${keyId}`, sandboxId: `sandbox of ${keyId}`, keyId, orgId }
    const opened = async () => {
      await once(socket, 'connect')
      return socket
    }
    return connections.open(owners, { kind: 'public' }, opened, () => undefined)
  }
  return { connections, metrics, open }
}

describe('the traffic of previews', () => {
  it('is counted, and unlimited by default', async () => {
    const { metrics, open, connections } = previews({})
    const connection = await open('key_a')
    const sent = Buffer.alloc(3_000_000, 'bytes ')
    connection.end(sent)
    expect((await buffer(connection)).equals(sent)).toBe(true)
    const text = await metrics.text(undefined)
    expect(text).toContain('glovebox_preview_bytes_total{direction="sent"} 3000000')
    expect(text).toContain('glovebox_preview_bytes_total{direction="received"} 3000000')
    await expect.poll(() => connections.size).toBe(0)
  })

  it.each([
    ['key', { bytesPerHourPerKey: 10_000 }, 'key_a', ['key_b', 'org_a']],
    ['organization', { bytesPerHourPerOrg: 10_000 }, 'key_b', ['key_c', 'org_b']],
  ] as const)('of a %s ends with its bytes of an hour', async (owner, limits, refused, [key, org]) => {
    const { open, connections } = previews(limits)
    const connection = await open('key_a')
    connection.on('error', () => undefined)
    connection.resume()
    connection.write(Buffer.alloc(20_000))
    await new Promise((resolve) => connection.once('close', resolve))
    expect(connections.size).toBe(0)
    await expect(open(refused)).rejects.toMatchObject({ code: 'preview_traffic', details: { owner, max: 10_000 } })
    const other = await open(key, org)
    other.end('works')
    expect(String(await buffer(other))).toBe('works')
  })

  it('of a key waits for its rate, and that of others does not', async () => {
    const { open, connections } = previews({ bytesPerSecondPerKey: 1 })
    const slow = await open('key_a')
    let received = 0
    slow.on('data', (piece: Buffer) => {
      received += piece.length
    })
    slow.on('error', () => undefined)
    slow.write(Buffer.alloc(1_000))
    slow.write(Buffer.alloc(1_000))
    await expect.poll(() => received).toBe(1_000)
    const other = await open('key_b')
    other.end('x')
    expect(String(await buffer(other))).toBe('x')
    // The second piece would be minutes late; also a connection that waits ends when it must.
    expect(received).toBe(1_000)
    connections.endAll()
    await expect.poll(() => connections.size).toBe(0)
  })

  it('begins again after an hour, and nothing is kept of those without traffic', () => {
    let nowMs = 0
    const traffic = new PreviewTraffic({ ...noPreviewLimits, bytesPerHourPerKey: 100 }, () => nowMs)
    const owners = { keyId: 'key_a', orgId: 'org_a' }
    expect(traffic.count(owners, 100, 'sent')).toBe(0)
    expect(() => traffic.requireRoom(owners)).toThrow('have transferred 100 bytes')
    expect(traffic.count(owners, 1, 'received')).toBeUndefined()
    nowMs = 3_600_000
    traffic.requireRoom(owners)
    expect(traffic.size).toBe(0)
    expect(traffic.count(owners, 100, 'received')).toBe(0)
  })
})
