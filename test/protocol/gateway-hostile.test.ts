import { once } from 'node:events'
import { get, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createUpstream, type UpstreamSettings } from '../../src/core/admin/upstreams.ts'
import { type Front, openFront } from '../support/front.ts'
import { openUpstream, type TestUpstream } from '../support/upstreams.ts'

let front: Front
let org: string
let secret: string
const opened: TestUpstream[] = []
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  org = (await createOrg(front.core.adminContext, operator, 'hostile')).id
  secret = (await createKey(front.core.adminContext, operator, org, {}, [])).secret
})
/** The response to a call that takes longer than a stream may take to open; it waits while the other tests run. */
let lateAnswer: Promise<string>
beforeAll(async () => {
  await registerSse('late', (stream, id) => setTimeout(() => stream.write(`data: ${result(id)}\n\n`), 11_000))
  lateAnswer = relayed('late').then((response) => response.text())
})
afterAll(async () => {
  await front.close()
  for (const upstream of opened) upstream.close()
})

const listing = { tools: [{ name: 'tool', inputSchema: { type: 'object' } }], prompts: [], resources: [], server: '' }

/** Registers an upstream with one tool. @param answer answers its calls. */
async function register(
  name: string,
  answer: (response: ServerResponse, id: unknown) => void,
  settings: UpstreamSettings = {},
): Promise<TestUpstream> {
  const upstream = await openUpstream((request, response, body) => {
    if (request.method !== 'POST') return response.writeHead(405).end()
    const { id, method } = JSON.parse(body.toString()) as { id?: unknown; method?: string }
    return method === 'tools/call' ? answer(response, id) : response.writeHead(202).end()
  })
  opened.push(upstream)
  const ref = { orgId: org, name: `hostile/${name}` }
  await createUpstream(front.core.adminContext, operator, ref, { url: upstream.url, ...settings })
  const { id } = (await front.store.upstreams.get(org, ref.name))!
  await front.store.upstreams.update(id, { listing: JSON.stringify(listing), updatedAt: name })
  return upstream
}

/** Registers an upstream of the older transport. @param answer answers its calls on the stream. */
async function registerSse(name: string, answer: (stream: ServerResponse, id: unknown) => void): Promise<void> {
  let stream: ServerResponse | undefined
  const upstream = await openUpstream((request, response, body) => {
    if (request.method === 'GET') {
      stream = response.writeHead(200, { 'content-type': 'text/event-stream' })
      stream.write('event: endpoint\ndata: /message\n\n')
      return
    }
    const { id, method } = JSON.parse(body.toString()) as { id?: unknown; method?: string }
    response.writeHead(202).end()
    if (method === 'initialize') stream?.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result: {} })}\n\n`)
    if (method === 'tools/call' && stream) answer(stream, id)
  })
  opened.push(upstream)
  const ref = { orgId: org, name: `hostile/${name}` }
  await createUpstream(front.core.adminContext, operator, ref, { url: upstream.url, transport: 'sse' })
}

const message = (name: string, id: unknown = 1) => ({
  ...{ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: {} } },
})
const headers = () => ({ authorization: `Bearer ${secret}` })
const relayed = (name: string) => front.post(`/hostile/${name}/sse`, message('tool'), headers())

/** Calls the tool at the endpoint with all tools, once its upstream is listed there. */
async function called(name: string): Promise<string> {
  const tool = `hostile_${name}__tool`
  const post = async (body: object) => (await front.post('/v1/mcp', body, headers())).text()
  await expect.poll(() => post({ jsonrpc: '2.0', id: 1, method: 'tools/list' })).toContain(tool)
  return post(message(tool))
}

const result = (id: unknown, text = 'done') =>
  JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text }] } })

describe('an upstream whose event stream', () => {
  const forms: [string, (json: string) => string[]][] = [
    ['ends lines with CRLF', (json) => [`event: message\r\ndata: ${json}\r\n\r\n`]],
    ['ends lines with CR', (json) => [`event: message\rdata: ${json}\r\r`]],
    ['is cut between CR and LF', (json) => [`: hi\r`, `\ndata: ${json}\r`, '\n\r', '\n']],
    [
      'has comments, and data in several lines',
      (json) => [`: hi\n\n`, `data: ${json.slice(0, 1)}\ndata: ${json.slice(1)}\n\n`],
    ],
    ['is cut inside of a character', (json) => [`data: ${json}\n\n`]],
  ]
  it.each(forms)('%s is read', async (form, pieces) => {
    const name = `lines-${forms.findIndex(([title]) => title === form)}`
    await register(name, async (response, id) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const bytes = pieces(result(id, 'dönе')).map((piece) => Buffer.from(piece))
      const cut = form.includes('character') ? bytes.flatMap((all) => [...all].map((byte) => Buffer.of(byte))) : bytes
      for (const piece of cut) {
        response.write(piece)
        await new Promise(setImmediate)
      }
      response.end()
    })
    expect(await called(name)).toContain('dönе')
    // The relay passes on the bytes of the upstream.
    expect(await (await relayed(name)).text()).toBe(pieces(result(1, 'dönе')).join(''))
  })

  it('never ends is relayed only as fast as the client reads, and closed when it disconnects', async () => {
    let sent = 0
    let isClosed = false
    await register('endless', (response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.once('close', () => {
        isClosed = true
      })
      const block = `: ${'x'.repeat(64 * 1024)}\n\n`
      const send = () => {
        while (!response.destroyed && response.write(block)) sent += block.length
        sent += block.length
      }
      response.on('drain', send)
      send()
    })
    const socket = connect(front.port, '127.0.0.1')
    const body = JSON.stringify(message('tool'))
    socket.write(
      `POST /hostile/endless/sse HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${secret}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
    await once(socket, 'readable')
    socket.pause()
    // What fits into the buffers of the sockets and of two processes, and nothing after that.
    const seen: number[] = []
    await expect
      .poll(() => seen.push(sent) > 3 && seen.at(-1) === seen.at(-3), { interval: 200, timeout: 10_000 })
      .toBe(true)
    expect(sent).toBeLessThan(64 * 1024 * 1024)
    socket.destroy()
    await expect.poll(() => isClosed).toBe(true)
  })

  it('floods a slow client over the older transport is left', async () => {
    let sent = 0
    await registerSse('flood', (stream, id) => {
      const message = 'x'.repeat(256 * 1024)
      const flood = () => {
        if (stream.destroyed || sent > 160) return
        const params = { progressToken: id, progress: sent++, message }
        const progress = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params })
        stream.write(`data: ${progress}\n\n`, () => setImmediate(flood))
      }
      flood()
    })
    const socket = connect(front.port, '127.0.0.1')
    const body = JSON.stringify({ ...message('tool'), params: { name: 'tool', _meta: { progressToken: 1 } } })
    socket.write(
      `POST /hostile/flood/sse HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${secret}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
    await once(socket, 'readable')
    await expect.poll(() => sent, { timeout: 20_000 }).toBeGreaterThan(160)
    let text = ''
    socket.on('data', (piece: Buffer) => {
      text = (text + piece.toString('latin1')).slice(-2_000)
    })
    await expect.poll(() => text, { timeout: 10_000 }).toContain('faster than the client reads')
    socket.destroy()
  })
})

describe('an upstream', () => {
  it('that answers with a huge JSON text is relayed in pieces, and refused where the whole text is needed', async () => {
    const size = 24 * 1024 * 1024
    await register('huge', (response, id) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end(result(id, 'x'.repeat(size))),
    )
    const response = await front.post('/hostile/huge/sse', message('tool'), {
      ...headers(),
      accept: 'application/json',
    })
    expect((await response.text()).length).toBeGreaterThan(size)
    expect(await called('huge')).toContain('larger than')
  })

  it('that answers with millions of values has its answer refused where it would be read, over each transport', async () => {
    const values = `{"content":[${'[],'.repeat(2_000_000)}1]}`
    const answer = (id: unknown) => `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${values}}`
    await register('values', (response, id) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end(answer(id)),
    )
    expect(await called('values')).toContain('more than 100000 values')
    await registerSse('values-sse', (stream, id) => stream.write(`data: ${answer(id)}\n\n`))
    expect(await (await relayed('values-sse')).text()).toContain('more than 100000 values')
  })

  it('that sends the response to another request has not answered', async () => {
    await register('ids', (response) =>
      response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`data: ${result('foreign')}\n\n`),
    )
    expect(await called('ids')).toContain('ended without a result')
  })

  it('that sends its headers slowly is 504, and one that sends its body slowly is relayed', async () => {
    await register('slow-head', () => {}, { timeout_ms: 1_000 })
    expect((await relayed('slow-head')).status).toBe(504)
    await register(
      'slow-body',
      (response, id) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
        setTimeout(() => response.end(`data: ${result(id)}\n\n`), 1_500)
      },
      { timeout_ms: 1_000 },
    )
    expect(await (await relayed('slow-body')).text()).toContain('done')
  })

  it('that refuses GET requests is healthy', async () => {
    await register('posts-only', (response, id) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end(result(id)),
    )
    for (let index = 0; index < 8; index++) {
      const request = get(`${front.url}/hostile/posts-only/sse`, { headers: { ...headers(), 'mcp-session-id': 's' } })
      const [response] = (await once(request, 'response')) as [import('node:http').IncomingMessage]
      expect(response.resume().statusCode).toBe(405)
    }
    expect(await (await relayed('posts-only')).text()).toContain('done')
  })

  it('of the older transport may take its time for a call', async () => {
    expect(await lateAnswer).toContain('done')
  }, 20_000)
})
