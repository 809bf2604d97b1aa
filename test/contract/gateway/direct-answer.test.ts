import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer, type Socket } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { Agent } from 'undici'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type DirectAnswer, requestDirectly } from '../../../src/gateway/direct-answer.ts'
import { UpstreamTimeout } from '../../../src/gateway/failures.ts'

const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`
const end = '0\r\n\r\n'
const MiB = 1024 * 1024

/** What the server does with the connection of each path. */
const answers: Record<string, (socket: Socket) => void> = {
  whole: (socket) => socket.write(`${head}${chunk('a')}${chunk('b')}${end}`),
  bytes: (socket) => socket.write(`${head}${chunk('x').repeat(5_000)}${end}`),
  large: (socket) => socket.write(`${head}${chunk('y'.repeat(MiB)).repeat(32)}${end}`),
  cut: (socket) => socket.end(`${head}${chunk('half')}`),
  informed: (socket) => socket.write(`HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n${head}${chunk('late')}${end}`),
  silent: () => {},
}
const sockets = new Set<Socket>()
const server = createServer((socket) => {
  sockets.add(socket.on('error', () => {}))
  socket.on('data', (bytes: Buffer) => answers[/^POST \/(\w+)/.exec(bytes.toString())![1]!]!(socket))
})
const agent = new Agent()
let origin: string
beforeAll(async () => {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(async () => {
  await agent.destroy()
  for (const socket of sockets) socket.destroy()
  server.close()
})

const ask = (path: string, { signal = new AbortController().signal, timeoutMs = 60_000 } = {}) =>
  requestDirectly(agent, { origin, path: `/${path}`, method: 'POST', body: '{}' }, { signal, timeoutMs })

/** Reads a body as it is passed on. @param room whether there is room after a piece. */
function read(answer: DirectAnswer, room: (piece: Buffer) => boolean = () => true) {
  const pieces: Buffer[] = []
  const done = new Promise<unknown>((resolve) => {
    answer.forward({
      take: (bytes, isLast) => {
        if (bytes) pieces.push(bytes)
        if (isLast) resolve('complete')
        return bytes === undefined || room(bytes)
      },
      fail: resolve,
    })
  })
  return { pieces, done }
}

describe('a response that is passed on without a stream', () => {
  it('is one piece where it arrives at once', async () => {
    const { pieces, done } = read(await ask('whole'))
    expect(await done).toBe('complete')
    expect(pieces.map(String)).toEqual(['ab'])
  })

  it('is complete in few pieces where it has many small chunks', async () => {
    const { pieces, done } = read(await ask('bytes'))
    expect(await done).toBe('complete')
    expect(Buffer.concat(pieces).toString()).toBe('x'.repeat(5_000))
    expect(pieces.length).toBeLessThan(500)
  })

  it('waits where there is no room, and continues after that', async () => {
    const answer = await ask('large')
    let taken = 0
    const { done } = read(answer, (piece) => {
      taken += piece.length
      return false
    })
    await delay(200)
    const first = taken
    expect(first).toBeLessThan(MiB)
    const timer = setInterval(() => answer.resume(), 1)
    expect(await done).toBe('complete')
    clearInterval(timer)
    expect(taken).toBe(32 * MiB)
  })

  it('fails after what has arrived where it is interrupted', async () => {
    const { pieces, done } = read(await ask('cut'))
    expect(await done).toMatchObject({ code: 'UND_ERR_SOCKET' })
    expect(Buffer.concat(pieces).toString()).toBe('half')
  })

  it('begins with its final status', async () => {
    const answer = await ask('informed')
    expect(answer.status).toBe(200)
    const { pieces, done } = read(answer)
    await done
    expect(Buffer.concat(pieces).toString()).toBe('late')
  })

  it('can be read as a stream instead, at the speed of its reader', async () => {
    expect((await buffer((await ask('whole')).body)).toString()).toBe('ab')
    expect((await buffer((await ask('large')).body)).length).toBe(32 * MiB)
    await expect(buffer((await ask('cut')).body)).rejects.toMatchObject({ code: 'UND_ERR_SOCKET' })
  })

  it('is refused where it does not begin in its time, or its client is gone', async () => {
    await expect(ask('silent', { timeoutMs: 50 })).rejects.toBeInstanceOf(UpstreamTimeout)
    await expect(ask('silent', { signal: AbortSignal.abort(new Error('gone')) })).rejects.toThrow('gone')
    const leaving = new AbortController()
    const waiting = ask('silent', { signal: leaving.signal })
    leaving.abort(new Error('left'))
    await expect(waiting).rejects.toThrow('left')
  })

  it('closes its connection where its client or its reader leaves', async () => {
    const leaving = new AbortController()
    const { done } = read(await ask('large', { signal: leaving.signal }))
    const closed = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const
    const closes = ([...closed] as const).map(({ resolve }) => resolve)
    for (const socket of sockets) socket.once('close', () => closes.shift()?.())
    leaving.abort(new Error('left'))
    expect(await done).toMatchObject({ message: 'left' })
    await closed[0].promise
    const { body } = await ask('large')
    for (const socket of sockets) socket.once('close', () => closes.shift()?.())
    body.on('error', () => {}).destroy()
    await closed[1].promise
  })
})
