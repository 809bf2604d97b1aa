import { createServer, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { Writer } from '../../../src/http/writer.ts'

const closing: (() => void)[] = []
afterEach(() => {
  for (const close of closing.splice(0)) close()
})

/** A response that a client has asked for and does not read yet. */
async function open(): Promise<{ response: ServerResponse; client: Socket }> {
  const asked = Promise.withResolvers<ServerResponse>()
  const server = createServer((_request, response) => {
    response.writeHead(200)
    asked.resolve(response)
  })
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1')
  client.pause()
  client.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')
  closing.push(() => {
    client.destroy()
    server.close()
  })
  return { response: await asked.promise, client }
}

/** Far more than sockets and kernel buffer between two ends of loopback. */
const large = 'é'.repeat(24 * 1024 * 1024)

describe('writing to a client', () => {
  it('waits while it does not read, holding a piece and not the whole', async () => {
    const { response, client } = await open()
    const writer = new Writer(response)
    let written = false
    const writing = writer.write(large).then(() => {
      written = true
    })
    await sleep(300)
    expect(written).toBe(false)
    expect(response.writableLength).toBeLessThan(256 * 1024)

    const pieces: Buffer[] = []
    client.on('data', (piece) => pieces.push(piece)).resume()
    await writing
    writer.end()
    await new Promise((ended) => client.once('end', ended))
    const characters = Buffer.concat(pieces).toString('utf8').match(/é/g)?.length
    expect(characters).toBe(large.length)
  })

  it('ends at once when it goes away', async () => {
    const { response, client } = await open()
    const writer = new Writer(response)
    const writing = writer.write(large)
    await sleep(50)
    client.destroy()
    await writing
    expect(writer.gone).toBe(true)
    await writer.write('more')
  })

  it('lets it go when it takes nothing for too long', async () => {
    const { response } = await open()
    const writer = new Writer(response, 100)
    await writer.write(large)
    expect(writer.gone).toBe(true)
  })

  it('never cuts a character in two', async () => {
    const { response, client } = await open()
    const text = `x${'😀'.repeat(40_000)}`
    const writer = new Writer(response)
    const pieces: Buffer[] = []
    client.on('data', (piece) => pieces.push(piece)).resume()
    await writer.write(text)
    writer.end()
    await new Promise((ended) => client.once('end', ended))
    const received = Buffer.concat(pieces).toString('utf8')
    expect(received).not.toContain('\ufffd')
    expect(received.match(/😀/gu)).toHaveLength(40_000)
  })

  it('says that it is alive while there is nothing to say, and stops with the end', async () => {
    const { response, client } = await open()
    const writer = new Writer(response).keepAlive(':\n\n', { afterMs: 20 })
    let received = ''
    client
      .on('data', (piece) => {
        received += piece.toString()
      })
      .resume()
    await vi.waitFor(() => expect(received.match(/:\n\n/g)?.length).toBeGreaterThanOrEqual(2))
    writer.end()
    await new Promise((ended) => client.once('end', ended))
  })
})
