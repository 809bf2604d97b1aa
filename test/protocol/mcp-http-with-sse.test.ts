import { readdirSync, readFileSync } from 'node:fs'
import { get as httpGet, type IncomingMessage } from 'node:http'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey, revokeKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { type Front, openFront, testProfile } from '../support/front.ts'

const profile = { ...testProfile, calls: { ...testProfile.calls, structuredResults: false } }
let front: Front

beforeAll(async () => {
  front = await openFront(profile)
})
afterAll(() => front.close())

/** An open stream, of which the frames are read one by one. */
interface Stream {
  response: IncomingMessage
  frame(): Promise<string>
  /** Resolves when the server has ended the stream. */
  readonly ended: Promise<void>
  close(): void
}

async function open(
  path = '/sse?toolsets=execute',
  headers: Record<string, string> = {},
  url = front.url,
): Promise<Stream> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    httpGet(`${url}${path}`, { headers: { accept: 'text/event-stream', ...headers }, agent: false }, resolve).on(
      'error',
      reject,
    )
  })
  response.setEncoding('utf8').on('error', () => {})
  const pieces = response[Symbol.asyncIterator]() as AsyncIterator<string>
  let held = ''
  return {
    response,
    frame: async () => {
      while (!held.includes('\n\n')) {
        const { value, done } = await pieces.next()
        if (done) return held
        held += value
      }
      const end = held.indexOf('\n\n') + 2
      const frame = held.slice(0, end)
      held = held.slice(end)
      return frame
    },
    ended: new Promise((resolve) => response.once('close', resolve)),
    close: () => response.destroy(),
  }
}

const endpointOf = (frame: string): string => /^event: endpoint\ndata: (\S+)\n\n$/.exec(frame)![1]!

const execute = (id: number, code: string) => ({
  ...{ jsonrpc: '2.0', id, method: 'tools/call' },
  params: { name: 'sandbox_execute', arguments: { language: 'bash', code } },
})

describe('HTTP with SSE', () => {
  it('answers the frames of a client of 2024-11-05', async () => {
    const stream = await open()
    expect(stream.response.headers['content-type']).toBe('text/event-stream')
    const endpoint = endpointOf(await stream.frame())
    expect(endpoint).toMatch(/^\/message\?sessionId=[0-9a-f-]{36}$/)
    const send = async (body: string) => {
      const response = await front.post(endpoint, body)
      expect([response.status, await response.text()]).toEqual([202, ''])
    }
    const answer = async () => JSON.parse(/^event: message\ndata: (.*)\n\n$/.exec(await stream.frame())![1]!)

    await send(
      '{"jsonrpc": "2.0","id": 1,"method": "initialize","params": {"protocolVersion": "2024-11-05","clientInfo": { "name": "client-name", "version": "0.1" },"capabilities": {}}}',
    )
    expect(await answer()).toMatchObject({
      jsonrpc: '2.0',
      id: 1,
      result: { protocolVersion: '2024-11-05', capabilities: { tools: {} }, serverInfo: { name: 'glovebox' } },
    })
    await send('{"jsonrpc":"2.0","method":"notifications/initialized"}')
    await send('{ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}')
    const { result } = await answer()
    expect(result.tools.map(({ name }: { name: string }) => name)).toContain('sandbox_execute')
    await send(JSON.stringify(execute(3, 'echo one; echo two')))
    expect(await answer()).toMatchObject({
      jsonrpc: '2.0',
      id: 3,
      result: { content: [{ type: 'text', text: expect.stringContaining('\none\ntwo\n') }] },
    })
    stream.close()
  })

  it('serves the official client, with progress and the toolsets that it selects', async () => {
    const client = new Client({ name: 'official', version: '1.0.0' })
    await client.connect(new SSEClientTransport(new URL(`${front.url}/sse?toolsets=execute`)))
    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(['sandbox_execute'])
    const messages: string[] = []
    const { params } = execute(1, 'echo first; sleep 0.3; echo second')
    const result = await client.callTool(params, undefined, {
      onprogress: ({ message }) => messages.push(message ?? ''),
    })
    expect(result.content).toEqual([{ type: 'text', text: expect.stringContaining('\nfirst\nsecond\n') }])
    expect(messages.join('')).toContain('first')
    await client.setLoggingLevel('warning')
    await client.close()
  })

  it('refuses messages without an open session, and malformed ones', async () => {
    const stream = await open()
    const endpoint = endpointOf(await stream.frame())
    const cases: [path: string, body: string, code: number, message: RegExp][] = [
      ['/message', '{}', -32602, /^Missing sessionId/],
      ['/message?sessionId=6f1e5fd0-7a0b-4a52-8f5e-000000000000', '{}', -32602, /^Invalid session ID/],
      [endpoint, '{', -32700, /not valid JSON/],
    ]
    for (const [path, body, code, message] of cases) {
      const response = await front.post(path, body)
      expect(response.status).toBe(400)
      expect(await response.json()).toMatchObject({
        jsonrpc: '2.0',
        id: null,
        error: { code, message: expect.stringMatching(message) },
      })
    }
    expect((await fetch(`${front.url}/message`)).status).toBe(405)
    expect((await front.post('/sse', '{}')).status).toBe(405)
    expect((await fetch(`${front.url}/sse?toolsets=unknown`)).status).toBe(400)
    stream.close()
  })

  it('binds a connection to its key, and ends it when the key is revoked', async () => {
    const guarded = await openFront(profile, { dev: false })
    try {
      const { adminContext } = guarded.core
      const { id } = await createOrg(adminContext, operator, 'sse')
      const [mine, other] = [
        await createKey(adminContext, operator, id, {}, []),
        await createKey(adminContext, operator, id, {}, []),
      ]
      const as = ({ secret }: { secret: string }) => ({ authorization: `Bearer ${secret}` })
      const stream = await open('/sse', as(mine), guarded.url)
      const endpoint = endpointOf(await stream.frame())
      const ping = { jsonrpc: '2.0', id: 1, method: 'ping' }
      expect((await guarded.post(endpoint, ping)).status).toBe(401)
      expect((await guarded.post(endpoint, ping, as(other))).status).toBe(400)
      expect((await guarded.post(endpoint, ping, as(mine))).status).toBe(202)
      expect(await stream.frame()).toContain('"result":{}')
      await revokeKey(adminContext, operator, id, mine.id)
      await stream.ended
    } finally {
      await guarded.close()
    }
  })

  it('names an address that is valid behind a proxy', async () => {
    const proxied = await openFront(testProfile, {
      publicUrl: 'https://tools.example/gb/',
      allowedHosts: ['127.0.0.1'],
    })
    try {
      const stream = await open('/sse', {}, proxied.url)
      expect(endpointOf(await stream.frame())).toMatch(/^\/gb\/message\?sessionId=/)
      stream.close()
    } finally {
      await proxied.close()
    }
  })

  it('leaves nothing of a thousand connections that were opened and dropped', async () => {
    const before = front.core.openRequests.usage
    for (let round = 0; round < 10; round += 1) {
      const streams = await Promise.all(Array.from({ length: 100 }, () => open()))
      await Promise.all(streams.map((stream) => stream.frame()))
      expect(front.core.openRequests.usage.requests).toBeGreaterThanOrEqual(100)
      for (const stream of streams) stream.close()
      await expect.poll(() => front.core.openRequests.usage).toEqual(before)
    }
  })

  it('cancels the calls of a connection that is dropped', async () => {
    const stream = await open()
    await front.post(endpointOf(await stream.frame()), execute(1, 'sleep 61'))
    await expect.poll(() => sleepers('sleep 61'), { timeout: 10_000 }).not.toEqual([])
    stream.close()
    await expect.poll(() => sleepers('sleep 61'), { timeout: 10_000 }).toEqual([])
  })

  it('closes a connection whose client does not read', async () => {
    const stream = await open('/sse?toolsets=execute,files,executions,sandbox')
    const endpoint = endpointOf(await stream.frame())
    stream.response.pause()
    const list = { jsonrpc: '2.0', method: 'tools/list' }
    let status = 202
    // Each answer has several kilobytes.
    for (let id = 0; status !== 400 && id < 20_000; id += 1)
      status = (await front.post(endpoint, { ...list, id })).status
    expect(status).toBe(400)
    stream.close()
  }, 120_000)

  it('lets calls in progress finish when the server stops', async () => {
    const stopping = await openFront(profile)
    const stream = await open('/sse?toolsets=execute', {}, stopping.url)
    await stopping.post(endpointOf(await stream.frame()), execute(1, 'sleep 1.7; echo finished'))
    await expect.poll(() => sleepers('sleep 1.7'), { timeout: 10_000 }).not.toEqual([])
    const closed = stopping.app.close()
    expect(await stream.frame()).toContain('finished')
    await closed
    await stopping.close()
  })
})

/** Command lines of processes that sleep. */
function sleepers(command = 'sleep 60'): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
        return line === command ? [line] : []
      } catch {
        return []
      }
    })
}
