import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { NetworkSecret } from '../../src/base/network-secrets.ts'
import { closeJailsAfterAll, openJail } from '../support/egress-jail.ts'
import { type Front, openFront } from '../support/front.ts'

/*
 * What a server writes that code in a sandbox runs, or reaches, is parsed in processes that serve every organization. A
 * listener that throws would end them, which fails the whole file here.
 */

const lines: [string, string][] = [
  ['a status of 0', 'HTTP/1.1 000 X\r\nContent-Length: 1\r\n\r\na'],
  ['a status below 100', 'HTTP/1.1 099 X\r\nContent-Length: 1\r\n\r\na'],
  ['101 without Upgrade', 'HTTP/1.1 101 X\r\n\r\na'],
  ['101 without a request for it', 'HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\na'],
  ['a control character in a header', 'HTTP/1.1 200 X\r\nX: a\x01b\r\nContent-Length: 1\r\n\r\na'],
  ['a length that no number holds', 'HTTP/1.1 200 X\r\nContent-Length: 99999999999999999999\r\n\r\na'],
  ['headers without an end', `HTTP/1.1 200 X\r\n${'x: y\r\n'.repeat(100_000)}`],
  ['informational responses only', 'HTTP/1.1 103 X\r\n\r\n'.repeat(1_000)],
]
const repaired: [string, string][] = [
  ['control characters in the reason', 'HTTP/1.1 200 O\x01\x00K\r\nContent-Length: 1\r\n\r\na'],
  ['no reason', 'HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na'],
  ['a status above those of the registry', 'HTTP/1.1 999 X\r\nContent-Length: 1\r\n\r\na'],
]

let port: number
const closings: (() => void)[] = []
beforeAll(async () => {
  const all = [...lines, ...repaired].map(([, written]) => written)
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    socket.once('data', (head) => {
      const number = Number(/ \/\S*?(\d+) /.exec(head.toString('latin1'))![1])
      socket.end(Buffer.from(all[number]!, 'latin1'))
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  closings.push(() => server.close())
  port = (server.address() as AddressInfo).port
})
afterAll(() => {
  for (const close of closings) close()
})

async function answerOf(to: number, head: string): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port: to })
  socket.write(`${head}\r\n\r\n`)
  return text(socket.setEncoding('latin1'))
}

describe('a server in a sandbox that writes', () => {
  let front: Front
  let path: string
  beforeAll(async () => {
    front = await openFront()
    closings.push(() => void front.close())
    const api = async (address: string, body: object) => {
      const headers = { 'content-type': 'application/json' }
      const response = await fetch(front.url + address, { method: 'POST', headers, body: JSON.stringify(body) })
      return (await response.json()) as { url: string }
    }
    await api('/v1/sandboxes', { name: 'hostile' })
    path = new URL((await api('/v1/sandboxes/hostile/ports', { port, access: 'public' })).url).pathname
  })
  const get = (number: number, more = 'Connection: close') =>
    answerOf(front.port, `GET ${path}${number} HTTP/1.1\r\nHost: localhost\r\n${more}`)
  const upgrade = 'Connection: upgrade\r\nUpgrade: websocket'

  it.each(lines)('%s is answered with 502, also to a request for another protocol', async (what) => {
    const number = lines.findIndex(([title]) => title === what)
    expect(await get(number)).toMatch(/^HTTP\/1\.1 502 /)
    const asked = await get(number, upgrade)
    if (what.startsWith('101 without a request')) expect(asked).toMatch(/^HTTP\/1\.1 101 [\s\S]*\r\n\r\na$/)
    else expect(asked).toMatch(/^HTTP\/1\.1 502 /)
  })

  it.each(repaired)('%s is relayed without what is invalid', async (what) => {
    const number = lines.length + repaired.findIndex(([title]) => title === what)
    for (const more of ['Connection: close', upgrade])
      expect(await get(number, more)).toMatch(/^HTTP\/1\.1 (?:200|999) [ OKX]*\r\n[\s\S]*\r\n\r\na$/)
  })
})

describe('a server on the network of a run that writes', () => {
  closeJailsAfterAll()
  const placeholder = `GLOVEBOX_SECRET_${'a1'.repeat(16)}`
  const secret: NetworkSecret = { name: 'TOKEN', placeholder, value: 'the-value', hosts: [], places: ['header'] }
  const networks: [string, object][] = [
    ['', {}],
    ['with secrets ', { secrets: [secret] }],
  ]
  const cases = networks.flatMap(([how, network]) =>
    [...lines, ...repaired].map(([what, written]) => [how, what, written, network] as const),
  )

  it.each(cases)('%s%s gets no further than its run', async (_how, what, written, network) => {
    secret.hosts = [`http://a.test:${port}`]
    const jail = await openJail({ rules: ['a.test:*', '127.0.0.0/8:*'], ...network }, { 'a.test': ['127.0.0.1'] })
    const number = [...lines, ...repaired].findIndex(([, one]) => one === written)
    const head = `GET http://a.test:${port}/${number} HTTP/1.1\r\nHost: a.test:${port}\r\nConnection: close\r\nX: ${placeholder}`
    const answer = await answerOf(jail.port, head)
    if (lines.some(([title]) => title === what)) expect(answer).toMatch(/^HTTP\/1\.1 502 /)
    else expect(answer).toMatch(/^HTTP\/1\.1 (?:200|999) [ OKX]*\r\n[\s\S]*a/)
  })
})
