import { once } from 'node:events'
import { createServer as createHttp } from 'node:http'
import { type AddressInfo, connect, createServer } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { closeJailsAfterAll, openJail } from '../support/egress-jail.ts'
import { type Front, openFront } from '../support/front.ts'

/*
 * The sender of a message decides on the size of its chunks. Each is a buffer with hundreds of bytes of its own, in processes
 * that serve every organization.
 */

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

const chunks = 200_000
const chunked = `${'1\r\n \r\n'.repeat(chunks)}0\r\n\r\n`
const ping = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' })
const body = `${ping.length.toString(16)}\r\n${ping}\r\n${chunked}`
const head = (path: string) =>
  `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n`

let front: Front
let unprotectedBytes: number
const closings: (() => void)[] = []
closeJailsAfterAll()
beforeAll(async () => {
  front = await openFront()
  closings.push(() => void front.close())
  const plain = createHttp((request, response) => {
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece)).on('end', () => response.end(String(pieces.length)))
  })
  const port = await listening(plain)
  unprotectedBytes = (await growthWhile(() => answerOf(port, head('/') + body))).bytes
}, 60_000)
afterAll(() => {
  for (const close of closings) close()
})

async function listening(server: ReturnType<typeof createServer>): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  closings.push(() => server.close())
  return (server.address() as AddressInfo).port
}

async function answerOf(port: number, request: string): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.write(request)
  return (await buffer(socket)).toString('latin1')
}

/** How much memory some work holds at its peak. */
async function growthWhile<T>(work: () => Promise<T>): Promise<{ bytes: number; result: T }> {
  const used = () => process.memoryUsage().heapUsed
  collect()
  const before = used()
  let peak = before
  let isOver = false
  const working = work().finally(() => {
    isOver = true
  })
  while (!isOver) {
    await delay(20)
    collect()
    peak = Math.max(peak, used())
  }
  return { bytes: peak - before, result: await working }
}

it('takes a body in chunks of one byte without the memory that they need', async () => {
  const { bytes, result } = await growthWhile(() => answerOf(front.port, head('/mcp') + body))
  expect(result).toMatch(/^HTTP\/1\.1 200 [\s\S]*"result":\{\}/)
  expect(bytes).toBeLessThan(unprotectedBytes / 2)
}, 60_000)

it('relays a response in chunks of one byte as fewer ones, from a sandbox and from the network', async () => {
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    socket.once('data', () => socket.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunked}`))
  })
  const port = await listening(server)
  const api = async (address: string, sent: object) => {
    const headers = { 'content-type': 'application/json' }
    const response = await fetch(front.url + address, { method: 'POST', headers, body: JSON.stringify(sent) })
    return (await response.json()) as { url: string }
  }
  await api('/v1/sandboxes', { name: 'pieces' })
  const { url } = await api('/v1/sandboxes/pieces/ports', { port, access: 'public' })
  const jail = await openJail({ rules: ['a.test:*', '127.0.0.0/8:*'] }, { 'a.test': ['127.0.0.1'] })
  const get = (target: string) => `GET ${target} HTTP/1.1\r\nHost: a.test:${port}\r\nConnection: close\r\n\r\n`
  for (const [to, request] of [
    [front.port, get(new URL(url).pathname).replace(/Host: \S+/, 'Host: localhost')],
    [jail.port, get(`http://a.test:${port}/`)],
  ] as const) {
    const answer = await answerOf(to, request)
    expect(answer).toMatch(/^HTTP\/1\.1 200 [\s\S]*\r\n0\r\n\r\n$/)
    expect(answer.length).toBeGreaterThan(chunks)
    // With six bytes for each, it would be six times as long.
    expect(answer.length).toBeLessThan(chunks * 2)
  }
}, 60_000)
