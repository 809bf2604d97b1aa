import { once } from 'node:events'
import { createServer, type IncomingMessage, request as requestOf } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { joinSmallPieces } from '../../../src/base/small-pieces.ts'

/** How each request is read; its answer has the number of its pieces and of its bytes. */
const readers: Record<string, (request: IncomingMessage) => Promise<Buffer[]>> = {
  plain: piecesOf,
  joined: (request) => {
    joinSmallPieces(request)
    return piecesOf(request)
  },
  slowly: async (request) => {
    joinSmallPieces(request)
    const pieces: Buffer[] = []
    for await (const piece of request) {
      pieces.push(piece as Buffer)
      if (pieces.length % 8 === 0) await delay(1)
    }
    return pieces
  },
}
async function piecesOf(request: IncomingMessage): Promise<Buffer[]> {
  const pieces: Buffer[] = []
  request.on('data', (piece: Buffer) => pieces.push(piece))
  await once(request, 'end')
  return pieces
}

let port: number
const server = createServer((request, response) => {
  void readers[request.url!.slice(1)]!(request).then((pieces) => {
    const all = Buffer.concat(pieces)
    response.end(JSON.stringify({ pieces: pieces.length, bytes: all.length, text: all.toString('latin1').slice(-8) }))
  })
})
beforeAll(async () => {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  port = (server.address() as AddressInfo).port
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

/** Sends a body in chunks, written at once. */
async function sent(path: string, chunks: readonly string[]) {
  const socket = connect(port, '127.0.0.1')
  socket.write(`POST /${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n`)
  socket.write(chunks.map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join(''))
  socket.write('0\r\n\r\n')
  const answer = (await buffer(socket)).toString()
  return JSON.parse(/\{.*\}/.exec(answer)![0]) as { pieces: number; bytes: number; text: string }
}

describe('pieces of a message', () => {
  it('are joined where there are many small ones, and complete in any mixture', async () => {
    const small = Array.from({ length: 40_000 }, (_, n) => String(n % 10))
    expect(await sent('plain', small)).toEqual({ pieces: 40_000, bytes: 40_000, text: '23456789' })
    for (const path of ['joined', 'slowly']) {
      const { pieces, bytes, text } = await sent(path, small)
      expect([bytes, text]).toEqual([40_000, '23456789'])
      expect(pieces).toBeLessThan(400)
    }
    const mixture = Array.from({ length: 3_000 }, (_, n) =>
      String.fromCharCode(97 + (n % 26)).repeat(1 + ((n * 37) % 1_500)),
    )
    for (const path of ['joined', 'slowly']) {
      const { bytes, text } = await sent(path, mixture)
      expect([bytes, text]).toEqual([mixture.join('').length, mixture.join('').slice(-8)])
    }
  })

  it('arrive one by one where they come one by one', async () => {
    const request = requestOf({ port, host: '127.0.0.1', path: '/joined', method: 'POST' })
    for (let n = 0; n < 5; n++) {
      request.write('x')
      await delay(20)
    }
    request.end()
    const [response] = (await once(request, 'response')) as [IncomingMessage]
    expect(JSON.parse((await buffer(response)).toString())).toMatchObject({ pieces: 5, bytes: 5 })
  })

  it('leave a connection usable for the next request', async () => {
    const socket = connect(port, '127.0.0.1')
    let answers = ''
    socket.on('data', (piece: Buffer) => (answers += piece.toString()))
    for (const connection of ['keep-alive', 'close']) {
      socket.write(
        `POST /joined HTTP/1.1\r\nHost: a\r\nConnection: ${connection}\r\nTransfer-Encoding: chunked\r\n\r\n`,
      )
      socket.write(`${'1\r\na\r\n'.repeat(5_000)}0\r\n\r\n`)
    }
    await once(socket, 'close')
    expect(answers.match(/"bytes":5000/g)).toHaveLength(2)
  })
})
