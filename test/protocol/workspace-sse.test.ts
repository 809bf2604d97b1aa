import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { get as httpGet, type IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { placeOfNetworkSecret } from '../../src/core/access/network-secrets.ts'
import { sealSecrets } from '../../src/core/upstreams/secrets.ts'
import { StoredCredentials } from '../../src/core/upstreams/stored-credentials.ts'
import { directoryHost } from '../support/agent-host.ts'
import { coreSettings, type Front, openFront, testProfile } from '../support/front.ts'

const root = mkdtempSync(join(tmpdir(), 'glovebox-sse-'))
const profile = { ...testProfile, env: { DEPLOY_TOKEN: 'tr0ub4dor-and-three', REGION: 'eu' } }
const host = directoryHost(root)
let front: Front

beforeAll(async () => {
  front = await openFront(profile, { dev: true }, undefined, undefined, undefined, host)
})
afterAll(async () => {
  await front.close()
  rmSync(root, { recursive: true, force: true })
})

const directoryOf = (workspace: string) => join(root, 'org_dev', workspace)

/** A Python project whose test fails. */
function project(workspace: string): string {
  const directory = directoryOf(workspace)
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, 'setup.py'), 'from setuptools import setup\nsetup(name="sums")\n')
  writeFileSync(join(directory, 'sums.py'), 'def add(a, b):\n    return a - b\n')
  const test =
    'import unittest\nfrom sums import add\n\nclass T(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n'
  writeFileSync(join(directory, 'test_sums.py'), test)
  writeFileSync(join(directory, '.gitignore'), 'ignored.txt\n')
  writeFileSync(join(directory, 'ignored.txt'), 'kept\n')
  execFileSync('git', ['init', '-q'], { cwd: directory })
  return directory
}

type Called = { text: string; isError: boolean; structured: Record<string, unknown> | undefined }

async function connect(
  transport: Transport,
): Promise<{ client: Client; call(name: string, input?: object): Promise<Called> }> {
  const client = new Client({ name: 'coding-agent', version: '1.0.0' })
  await client.connect(transport)
  return {
    client,
    call: async (name, input = {}) => {
      const result = await client.callTool({ name, arguments: { ...input } })
      const [first] = result.content as { type: string; text?: string }[]
      return {
        text: first?.text ?? '',
        isError: result.isError === true,
        structured: result.structuredContent as Record<string, unknown> | undefined,
      }
    },
  }
}

const sse = (query = '') => new SSEClientTransport(new URL(`${front.url}/sse${query}`))
const streamable = () => new StreamableHTTPClientTransport(new URL(`${front.url}/mcp?toolsets=workspace`))

describe('a coding agent', () => {
  for (const [name, transport, workspace] of [
    ['the official client of the transport of 2024-11-05', sse, 'over-sse'],
    ['the official client of Streamable HTTP', streamable, 'over-mcp'],
  ] as const) {
    it(`does a whole task with ${name}`, async () => {
      const directory = project(workspace)
      const { client, call } = await connect(transport())
      const { tools } = await client.listTools()
      expect(tools.map((tool) => tool.name)).toEqual(
        expect.arrayContaining(['Read', 'Edit', 'Bash', 'run_tests', 'snapshot_restore']),
      )
      expect(await call('Glob', { pattern: '*.py', workspace })).toMatchObject({
        isError: false,
        text: expect.stringContaining('sums.py'),
      })
      expect((await call('Read', { file_path: 'sums.py', workspace })).text).toBe(
        '1\tdef add(a, b):\n2\t    return a - b\n',
      )

      const failed = await call('run_tests', { workspace })
      expect(failed.isError).toBe(true)
      expect(failed.structured?.findings).toEqual([
        expect.objectContaining({ file: 'test_sums.py', line: 6, test: 'test_add' }),
      ])
      expect((await call('last_test_failures', { workspace })).text).toMatch(/test_add\ntest_sums\.py:6/)

      expect((await call('snapshot_create', { name: 'before', workspace })).text).toMatch(/^snapshot before created/)
      const early = await call('Edit', { file_path: 'test_sums.py', old_string: '5', new_string: '6', workspace })
      expect(early).toMatchObject({ isError: true, text: 'refusing to edit test_sums.py: Read it first' })
      const edited = await call('Edit', { file_path: 'sums.py', old_string: 'a - b', new_string: 'a + b', workspace })
      expect(edited.text).toBe('replaced 1 occurrence(s) in sums.py')
      expect(await call('run_tests', { workspace })).toMatchObject({ isError: false })

      await call('Bash', {
        command: 'rm ignored.txt; mkdir made; cd made; export STEP=2; echo new > new.txt',
        workspace,
      })
      expect((await call('Bash', { command: 'echo $STEP in $(basename $PWD)', workspace })).text).toBe('2 in made\n')
      const diff = (await call('snapshot_diff', { name: 'before', workspace })).text
      expect(diff).toMatch(/- {4}return a - b\n\+ {4}return a \+ b/)
      expect(diff).toContain('made/new.txt')
      expect(diff).toContain('ignored.txt')
      const head = execFileSync('git', ['status', '--porcelain'], { cwd: directory, encoding: 'utf8' })
      const restored = await call('snapshot_restore', { name: 'before', workspace })
      expect(restored.text).toMatch(/^restored before/)
      expect(readFileSync(join(directory, 'sums.py'), 'utf8')).toContain('a - b')
      expect(readFileSync(join(directory, 'ignored.txt'), 'utf8')).toBe('kept\n')
      expect(readdirSync(directory)).not.toContain('new.txt')
      expect(head).toContain('?? sums.py')
      expect((await call('snapshot_diff', { name: 'before', workspace })).text).toBe('no changes')
      await client.close()
    })
  }

  it('sees no secret, wherever it comes from', async () => {
    const { client, call } = await connect(sse())
    const token = `ghp_${'a1B2'.repeat(9)}`
    writeFileSync(join(directoryOf('over-sse'), 'leak.txt'), `token ${token}\n`)
    const workspace = 'over-sse'
    expect((await call('Read', { file_path: 'leak.txt', workspace })).text).toBe('1\ttoken [REDACTED:github-pat]\n')
    expect(
      (await call('Bash', { command: `echo ${token}; echo tr0ub4dor-and-three | base64; exit 3`, workspace })).text,
    ).toMatch(/^\[REDACTED:github-pat\]\n\[REDACTED:DEPLOY_TOKEN\]\S*\nexit: 3$/)
    expect((await call('Read', { file_path: `${token}.txt`, workspace })).text).toMatch(
      /path not found: \[REDACTED:github-pat\]/,
    )
    // Printed in two parts, which two calls read.
    const shell = await call('Bash', {
      command: `printf ${token.slice(0, 15)}; sleep 1; echo ${token.slice(15)}`,
      run_in_background: true,
      workspace,
    })
    const shell_id = /shell_id: (\S+)/.exec(shell.text)![1]!
    let cursor = '0:0'
    let seen = ''
    for (let ended = false; !ended; ) {
      const { text } = await call('BashOutput', { shell_id, cursor, workspace })
      cursor = /cursor: (\S+)/.exec(text)![1]!
      ended = text.includes('status: completed')
      seen += text.slice(text.indexOf('--- stdout'))
    }
    expect(seen).toContain('[REDACTED:github-pat]')
    expect(seen).not.toContain(token.slice(0, 15))
    expect((await call('secrets_available')).text).toBe('DEPLOY_TOKEN\nREGION')
    expect((await call('secret', { name: 'deploy_token' })).text).toBe('tr0ub4dor-and-three')
    const { rows } = await front.store.audit.list({ action: 'workspace.secret' }, 0, 10)
    expect(rows).toEqual([
      expect.objectContaining({ actor: 'key_dev', target: 'DEPLOY_TOKEN', details: '{"length":19}' }),
    ])
    await client.close()
  })

  it('sees no secret of its organization: not those for the network, and no credential or token of an upstream', async () => {
    const { vault } = coreSettings
    const at = '2026-01-01T00:00:00.000Z'
    const orgId = 'org_dev'
    await front.store.networkSecrets.put({
      ...{
        orgId,
        name: 'PAYMENTS',
        placeholder: 'gbs_x',
        hosts: '[]',
        places: '[]',
        hint: '…',
        createdAt: at,
        updatedAt: at,
      },
      value: vault.seal(placeOfNetworkSecret(orgId, 'PAYMENTS'), 'first ordinary value'),
    })
    const credential = {
      in: 'header',
      name: 'authorization',
      prefix: 'Bearer ',
      values: ['second ordinary value'],
    } as const
    const headers = { 'x-api-key': 'third/ordinary/value', 'x-region': 'frankfurt-one' }
    await front.store.upstreams.create({
      ...{ id: 'ups_1', orgId, name: 'acme/mail', displayName: '', description: '', tags: '[]', transport: 'http' },
      ...{
        url: 'https://mail.example.com/',
        program: null,
        timeoutMs: 1_000,
        enabled: 1,
        credentialMode: 'shared',
        listing: null,
      },
      ...{ listedAt: null, changedListing: null, createdAt: at, updatedAt: at },
      secrets: sealSecrets(vault, 'ups_1', { headers, credential }),
    })
    const own = { upstreamId: 'ups_1', keyId: 'key_dev' }
    const credentials = new StoredCredentials(front.store, vault)
    await credentials.put(own, { kind: 'values', values: ['fourth ordinary value'] })
    const [first, ...others] = [
      'first ordinary value',
      'second ordinary value',
      'third/ordinary/value',
      'fourth ordinary value',
    ].map((value) => `${value} ${Buffer.from(value).toString('hex')} ${encodeURIComponent(value)}`)
    const shown = (name: string) => Array(3).fill(`[REDACTED:${name}]`).join(' ')
    writeFileSync(join(directoryOf('over-sse'), 'given.txt'), [first, ...others, 'frankfurt-one'].join('\n'))
    const { client, call } = await connect(sse())
    const read = async () => (await call('Read', { file_path: 'given.txt', workspace: 'over-sse' })).text
    const expected = [shown('PAYMENTS'), ...Array(3).fill(shown('acme_mail')), 'frankfurt-one']
    // A new secret is known within a quarter of a second.
    await expect.poll(read).toBe(expected.map((line, n) => `${n + 1}\t${line}\n`).join(''))
    // Programs send its placeholder, so this is what the tool returns.
    const developer = await front.core.developer()
    const network = { policy: 'public', allow: [], deny: [] } as never
    const connected = { ...developer, profile: { ...developer.profile, network, secrets: ['PAYMENTS'] } }
    expect(await front.core.workspaces.secrets(connected)).toContain('PAYMENTS')
    expect(await front.core.workspaces.secret(connected, 'payments')).toBe('gbs_x')
    await front.store.networkSecrets.remove(orgId, 'PAYMENTS')
    await expect.poll(read).toContain('first ordinary value')
    await client.close()
  })

  it('gets its own faults as results, and those of the server as errors', async () => {
    const { client, call } = await connect(sse())
    expect(await call('Read', { file_path: '../x' })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/outside workspace root/),
    })
    expect(await call('Grep', { pattern: '(' })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/unclosed group/),
    })
    expect(await call('Grep', { pattern: 'x', output_mode: 'all' })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/unknown output_mode: all \(valid: content, files_with_matches, count\)/),
    })
    // The agent is killed from within the sandbox: the call is lost, and the next one has a new agent.
    await expect(call('Bash', { command: 'kill -9 $PPID; sleep 5' })).rejects.toMatchObject({ code: -32000 })
    expect(await call('Bash', { command: 'echo back' })).toMatchObject({ text: 'back\n' })
    await client.close()
  })

  it('that may only read gets no tool that changes anything', async () => {
    const calls = { ...testProfile.calls, workspaceReadOnly: true }
    const readOnly = await openFront({ ...testProfile, calls }, {}, undefined, undefined, undefined, host)
    try {
      const { client, call } = await connect(new SSEClientTransport(new URL(`${readOnly.url}/sse`)))
      const { tools } = await client.listTools()
      expect(tools.every(({ annotations }) => annotations?.readOnlyHint)).toBe(true)
      expect(tools.map(({ name }) => name)).toContain('Read')
      await expect(call('Write', { file_path: 'x', content: 'x' })).rejects.toMatchObject({ code: -32602 })
      const request = { op: 'write', args: { file_path: 'x', content: 'x' }, timeoutMs: 1000 }
      await expect(
        readOnly.core.workspaces.change(readOnly.caller, request, new AbortController().signal),
      ).rejects.toMatchObject({ code: expect.stringMatching(/permission_denied|workspace_read_only/) })
      await client.close()
    } finally {
      await readOnly.close()
    }
  })
})

/** An open stream, of which the frames are read one by one. */
interface Stream {
  response: IncomingMessage
  frame(): Promise<string>
  close(): void
}

async function open(path = '/sse', headers: Record<string, string> = {}): Promise<Stream> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    httpGet(`${front.url}${path}`, { headers: { accept: 'text/event-stream', ...headers }, agent: false }, resolve).on(
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
    close: () => response.destroy(),
  }
}

const endpointOf = (frame: string): string => /^event: endpoint\ndata: (\S+)\n\n$/.exec(frame)![1]!

describe('the transport', () => {
  it('answers the frames of the documentation of the seed', async () => {
    project('workspace')
    writeFileSync(join(directoryOf('workspace'), 'README.md'), '# My project\ntext\n')
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
      result: { protocolVersion: '2024-11-05', capabilities: { tools: {} }, serverInfo: { name: expect.any(String) } },
    })
    await send('{"jsonrpc":"2.0","method":"notifications/initialized"}')
    await send('{ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}')
    const { result } = await answer()
    expect(result.tools.find(({ name }: { name: string }) => name === 'Read').inputSchema.required).toEqual([
      'file_path',
    ])
    await send(
      '{ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": "Read", "arguments": { "file_path": "README.md" } }}',
    )
    expect(await answer()).toMatchObject({
      jsonrpc: '2.0',
      id: 3,
      result: { content: [{ type: 'text', text: '1\t# My project\n2\ttext\n' }] },
    })
    stream.close()
  })

  it('keeps what was read per connection, and the connection to its key', async () => {
    const [first, second] = [await connect(sse()), await connect(sse())]
    await first.call('Read', { file_path: 'README.md' })
    const edit = { file_path: 'README.md', old_string: 'text', new_string: 'prose' }
    expect((await second.call('Edit', edit)).text).toBe('refusing to edit README.md: Read it first')
    expect((await first.call('Edit', edit)).isError).toBe(false)
    await Promise.all([first.client.close(), second.client.close()])
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
    expect((await fetch(`${front.url}/sse`, { method: 'POST', body: '{}' })).status).toBe(405)
    stream.close()
  })

  it('names an address that is valid behind a proxy', async () => {
    const proxied = await openFront(testProfile, {
      publicUrl: 'https://tools.example/gb/',
      allowedHosts: ['127.0.0.1'],
    })
    try {
      const response = await fetch(`${proxied.url}/sse`)
      const reader = response.body!.getReader()
      const { value } = await reader.read()
      expect(Buffer.from(value!).toString()).toMatch(/^event: endpoint\ndata: \/gb\/message\?sessionId=/)
      await reader.cancel()
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
    const endpoint = endpointOf(await stream.frame())
    const mark = join(directoryOf('workspace'), 'running')
    const command = `echo > ${mark}; sleep 60; echo > ${mark}-over`
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'Bash', arguments: { command } } }
    await front.post(endpoint, call)
    await expect.poll(() => readdirSync(directoryOf('workspace'))).toContain('running')
    stream.close()
    await expect.poll(() => sleepers()).toEqual([])
  })

  it('closes a connection whose client does not read', async () => {
    const stream = await open()
    const endpoint = endpointOf(await stream.frame())
    stream.response.pause()
    let status = 202
    const call = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'Bash', arguments: { command: 'head -c 90000 /dev/zero | tr "\\0" x' } },
    }
    for (let n = 0; status !== 400 && n < 8_000; n += 1) {
      status = (await front.post(endpoint, { ...call, id: n })).status
      if (status === 429)
        await expect
          .poll(async () => (await front.post(endpoint, { jsonrpc: '2.0', method: 'x' })).status, { timeout: 20_000 })
          .not.toBe(429)
    }
    expect(status).toBe(400)
    stream.close()
  }, 120_000)
})

describe('a connection', () => {
  /** Opens a stream of a front with other times, and returns what it sends until it ends. */
  async function untilEnd(
    eventTimes: object,
    use: (url: string, endpoint: string) => Promise<unknown> = async () => {},
  ) {
    const own = await openFront(testProfile, { eventTimes }, undefined, undefined, undefined, host)
    try {
      const response = await fetch(`${own.url}/sse`)
      let seen = ''
      for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
        const isFirst = seen === ''
        seen += piece
        if (isFirst) void use(own.url, endpointOf(seen))
      }
      return seen
    } finally {
      await own.close()
    }
  }
  const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
  const send = (url: string, body = ping) =>
    fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body })

  it('ends when it has been idle for too long, and is kept alive until then', async () => {
    const seen = await untilEnd({ idleMaxMs: 300, checkEveryMs: 20, keepAliveMs: 50 })
    expect(seen).toMatch(/^event: endpoint\ndata: \S+\n\n(: keep-alive\n\n)+$/)
  })

  it('ends at the end of its lifetime, however much it is used', async () => {
    let isOver = false
    const seen = await untilEnd({ idleMaxMs: 60_000, lifetimeMs: 300, checkEveryMs: 20 }, async (url, endpoint) => {
      // The server is closed when the stream has ended.
      const statusOf = () =>
        send(url + endpoint).then(
          ({ status }) => status,
          () => 0,
        )
      while (!isOver) isOver = (await statusOf()) !== 202
    })
    expect(seen).toContain('"result":{}')
  })

  it('answers the calls in progress when the server stops, for a limited time', async () => {
    for (const [graceMs, isAnswered] of [
      [30_000, true],
      [50, false],
    ] as const) {
      const own = await openFront(testProfile, { eventTimes: { graceMs } }, undefined, undefined, undefined, host)
      const response = await fetch(`${own.url}/sse`)
      let seen = ''
      let closing: Promise<void> | undefined
      const command = isAnswered ? 'sleep 0.5; echo late' : 'sleep 20; echo late'
      const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'Bash', arguments: { command } } }
      for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
        seen += piece
        if (closing) continue
        expect((await send(own.url + endpointOf(seen), JSON.stringify(call))).status).toBe(202)
        closing = own.close()
      }
      await closing
      expect([graceMs, seen.includes('late')]).toEqual([graceMs, isAnswered])
    }
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
