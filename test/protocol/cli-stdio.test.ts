import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { json } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ProcessIo } from '../../src/cli/process-io.ts'
import { type StdioRequest, stdio } from '../../src/cli/stdio.ts'
import { conformanceOffers } from '../conformance/inventory.ts'
import { type Front, openFront } from '../support/front.ts'

let front: Front
let directory: string
beforeAll(async () => {
  front = await openFront(undefined, {}, conformanceOffers())
  directory = await mkdtemp(join(tmpdir(), 'glovebox-stdio-'))
})
afterAll(async () => {
  await front.close()
  await rm(directory, { recursive: true })
})

/** Runs the command over these lines; returns its output lines by id. */
async function converse(messages: readonly (object | string)[], request: StdioRequest = { url: front.url }) {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
  const io: ProcessIo = {
    stdin,
    stdout,
    stderr,
    env: {},
    self: ['node'],
    stop: new AbortController().signal,
    onRepeatedSignal: () => undefined,
  }
  const ended = stdio(request, io)
  for (const message of messages) stdin.write(`${typeof message === 'string' ? message : JSON.stringify(message)}\n`)
  stdin.end()
  const code = await ended
  stdout.end()
  const lines = (await stdout.toArray())
    .join('')
    .split('\n')
    .filter((line) => line !== '')
  return { code, lines, messages: lines.map((line) => JSON.parse(line)) }
}

const meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
}
const request = (id: number | string, method: string, params: object = {}) => ({ jsonrpc: '2.0', id, method, params })

describe('glovebox stdio', () => {
  it('speaks the protocol version of its client, and answers each request under its id', async () => {
    const { code, messages } = await converse([
      request(1, 'initialize', { protocolVersion: '2025-06-18', capabilities: {} }),
      { jsonrpc: '2.0', method: 'notifications/initialized' },
      request('two', 'ping'),
      request(3, 'server/discover', { _meta: meta }),
      request(4, 'tools/nothing'),
    ])
    expect(code).toBe(0)
    const byId = new Map(messages.map((message) => [message.id, message]))
    expect(byId.size).toBe(4)
    expect(byId.get(1).result.protocolVersion).toBe('2025-06-18')
    expect(byId.get('two').result).toEqual({})
    expect(byId.get(3).result.supportedVersions).toEqual(['2026-07-28'])
    expect(byId.get(4).error.code).toBe(-32601)
  })

  it('mirrors arguments as headers once it knows which arguments are marked', async () => {
    const call = { name: 'test_x_mcp_header', arguments: { region: 'Zürich ☂' }, _meta: meta }
    const { messages: before } = await converse([request(1, 'tools/call', call)])
    expect(before[0].error.code).toBe(-32020)

    const [stdin, stdout] = [new PassThrough(), new PassThrough()]
    const io: ProcessIo = {
      stdin,
      stdout,
      stderr: new PassThrough(),
      env: {},
      self: ['node'],
      stop: new AbortController().signal,
      onRepeatedSignal: () => undefined,
    }
    const ended = stdio({ url: front.url }, io)
    stdin.write(`${JSON.stringify(request(1, 'tools/list', { _meta: meta }))}\n`)
    const answers: string[] = []
    for await (const chunk of stdout) {
      answers.push(String(chunk))
      if (answers.join('').split('\n').length === 2) {
        stdin.write(`${JSON.stringify(request(2, 'tools/call', call))}\n`)
        stdin.end()
      }
      if (answers.join('').split('\n').length === 3) break
    }
    await ended
    expect(JSON.parse(answers.join('').split('\n')[1] ?? '').result.content[0].text).toBe('{"region":"Zürich ☂"}')
  })

  it('reports an unreadable line, a rejected key and an unreachable server as errors of the request', async () => {
    const { messages } = await converse(['{"jsonrpc":', request(7, 'ping')])
    expect(messages.map(({ id, error }) => [id, error?.code])).toEqual(
      expect.arrayContaining([
        [null, -32700],
        [7, undefined],
      ]),
    )
    const dead = await converse([request(1, 'ping')], { url: 'http://127.0.0.1:9' })
    expect(dead.messages).toMatchObject([
      { id: 1, error: { code: -32603, message: expect.stringContaining('reached') } },
    ])
    const locked = await openFront(undefined, { dev: false })
    const { messages: refused } = await converse([request(1, 'ping')], { url: locked.url })
    expect(refused).toMatchObject([{ id: 1, error: { message: expect.stringMatching(/^No API key was sent/) } }])
    await locked.close()
  })

  it('reads its key from a file', async () => {
    const keyFile = join(directory, 'key')
    await writeFile(keyFile, 'sk-wrong\n')
    const locked = await openFront(undefined, { dev: false })
    const { messages } = await converse([request(1, 'ping')], { url: locked.url, keyFile })
    expect(messages[0].error.message).toContain('Invalid or revoked')
    await expect(converse([], { url: locked.url, keyFile: join(directory, 'none') })).rejects.toThrow('key file')
    await locked.close()
  })

  it('ends a subscription when its client disconnects', async () => {
    const listen = request('sub', 'subscriptions/listen', { notifications: { toolsListChanged: true }, _meta: meta })
    const { code } = await converse([listen, request(1, 'server/discover', { _meta: meta })])
    expect(code).toBe(0)
  })

  it('limits the tools that are listed', async () => {
    const { messages } = await converse([request(1, 'tools/list')], { url: front.url, toolsets: 'files' })
    expect(messages[0].result.tools).toEqual([])
  })
})

describe('server-sent events', () => {
  const breaks = 'a\u2028b\u2029c\u0085d'
  const result = { content: [{ type: 'text', text: breaks }] }

  /** Answers every request with this stream, in chunks of three bytes that split characters and line endings. */
  async function answering(stream: (id: unknown) => string) {
    const server = createServer(async (incoming, response) => {
      const { id } = (await json(incoming)) as { id: unknown }
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const bytes = Buffer.from(stream(id))
      for (let at = 0; at < bytes.length; at += 3) response.write(bytes.subarray(at, at + 3))
      response.end()
    })
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() }
  }

  it.each(['\n', '\r\n', '\r'])('with several data lines that end in %j become one line', async (ending) => {
    const server = await answering((id) => {
      const pretty = JSON.stringify({ jsonrpc: '2.0', id, result }, null, 2)
      const event = ['event: message', ...pretty.split('\n').map((line) => `data: ${line}`), '', '']
      return [': comment', ...event].join(ending)
    })
    try {
      const { messages } = await converse([request(5, 'tools/call')], { url: server.url })
      expect(messages).toEqual([{ jsonrpc: '2.0', id: 5, result }])
    } finally {
      server.close()
    }
  })

  it('keep integers beyond 2^53 as they are', async () => {
    const { lines } = await converse(['{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}'])
    expect(lines).toEqual(['{"jsonrpc":"2.0","id":9007199254740993,"result":{}}'])
  })

  it('leave as lines that no client splits at U+2028, U+2029 or U+0085', async () => {
    const server = await answering((id) => `data:${JSON.stringify({ jsonrpc: '2.0', id, result })}\n\n`)
    const stdout = new PassThrough()
    const stdin = new PassThrough()
    const io: ProcessIo = {
      stdin,
      stdout,
      stderr: new PassThrough(),
      env: {},
      self: ['node'],
      stop: new AbortController().signal,
      onRepeatedSignal: () => undefined,
    }
    try {
      stdin.end(`${JSON.stringify(request(5, 'tools/call'))}\n`)
      await stdio({ url: server.url }, io)
      stdout.end()
      const text = (await stdout.toArray()).join('')
      expect(text.trimEnd().split(/[\n\r\u2028\u2029\u0085]/)).toHaveLength(1)
      expect(JSON.parse(text).result).toEqual(result)
    } finally {
      server.close()
    }
  })
})
