import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { connect } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readClientHello } from '../../../src/egress/client-hello.ts'

/** The first bytes that Node.js sends. */
async function helloFor(servername: string | undefined): Promise<Buffer> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  const client = connect({ port, host: '127.0.0.1', ...(servername !== undefined && { servername }) })
  client.on('error', () => undefined)
  const [socket] = (await once(server, 'connection')) as [Socket]
  const [first] = (await once(socket, 'data')) as [Buffer]
  client.destroy()
  socket.destroy()
  server.close()
  return first
}

describe('the first message of TLS', () => {
  let hello: Buffer
  beforeAll(async () => {
    hello = await helloFor('api.example.com')
  })
  afterAll(() => undefined)

  it('shows the name of the server', () => {
    expect(readClientHello(hello)).toEqual({ kind: 'hello', serverName: 'api.example.com', isEncrypted: false })
  })

  it('shows that there is no name', async () => {
    expect(readClientHello(await helloFor(undefined))).toMatchObject({ kind: 'hello', serverName: undefined })
  })

  it('is read from any number of pieces and records', () => {
    for (let length = 1; length < hello.length; length++)
      expect([length, readClientHello(hello.subarray(0, length)).kind]).toEqual([length, 'incomplete'])
    const content = hello.subarray(5)
    const record = (part: Buffer) =>
      Buffer.concat([hello.subarray(0, 3), Buffer.from([part.length >> 8, part.length]), part])
    const inPieces = Buffer.concat([
      record(content.subarray(0, 3)),
      record(content.subarray(3, 90)),
      record(content.subarray(90)),
    ])
    expect(readClientHello(inPieces)).toMatchObject({ serverName: 'api.example.com' })
  })

  it('is malformed when a length of it points elsewhere, and never throws', () => {
    for (let at = 5; at < hello.length; at++) {
      const broken = Buffer.from(hello)
      broken[at] = (broken[at] ?? 0) ^ 0xff
      expect(['hello', 'malformed', 'incomplete']).toContain(readClientHello(broken).kind)
    }
    expect(readClientHello(Buffer.from([22, 3, 1, 0, 0])).kind).toBe('malformed')
    expect(readClientHello(Buffer.concat([Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0])])).kind).toBe('malformed')
  })

  it('shows an encrypted name', () => {
    // The type of the first extension after that of the server name becomes the one of ECH.
    const at = hello.indexOf(Buffer.from('api.example.com')) + 'api.example.com'.length
    const encrypted = Buffer.from(hello)
    encrypted.writeUInt16BE(0xfe0d, at)
    expect(readClientHello(encrypted)).toMatchObject({ kind: 'hello', isEncrypted: true })
  })

  it('is not what a client of another protocol sends', () => {
    for (const text of ['GET / HTTP/1.1\r\n', 'SSH-2.0-x\r\n', ''])
      expect(readClientHello(Buffer.from(text)).kind).toBe('not_tls')
  })
})
