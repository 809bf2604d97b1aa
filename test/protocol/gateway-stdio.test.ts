import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Admin, operator } from '../../src/core/admin/admin.ts'
import { applyDeclaration } from '../../src/core/admin/declared/apply.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import type { UpstreamView } from '../../src/core/admin/upstream-view.ts'
import {
  createUpstream,
  refreshUpstream,
  removeUpstream,
  testUpstream,
  type UpstreamSettings,
  updateUpstream,
} from '../../src/core/admin/upstreams.ts'
import { type Front, openFront } from '../support/front.ts'
import { askModern } from '../support/modern.ts'
import { isAlive, know } from '../support/processes.ts'
import { officialServer, plainServer } from '../support/stdio-upstream.ts'

let front: Front
let org: string
let secret: string
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  org = (await createOrg(front.core.adminContext, operator, 'programs')).id
  secret = await newKey()
  await register('acme/plain')
  await register('acme/shared', { program: { ...plainServer(), sharing: 'shared' } })
  await register('acme/official', { program: officialServer })
})
afterAll(() => front.close())

const newKey = async (): Promise<string> =>
  (await createKey(front.core.adminContext, operator, org, { tools: null }, [])).secret

const ref = (name: string) => ({ orgId: org, name })

const register = (name: string, settings: UpstreamSettings = {}): Promise<UpstreamView> =>
  createUpstream(front.core.adminContext, operator, ref(name), { program: plainServer(), ...settings })

const update = (name: string, settings: UpstreamSettings) =>
  updateUpstream(front.core.adminContext, operator, ref(name), settings)

async function connect(name: string, key = secret, capabilities: object = {}): Promise<Client> {
  const client = new Client({ name: 'judge', version: '1' }, { capabilities: { elicitation: {}, ...capabilities } })
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept' as const, content: {} }))
  const requestInit = { headers: { authorization: `Bearer ${key}` } }
  await client.connect(
    new StreamableHTTPClientTransport(new URL(`${front.url}/${name}/sse`), { requestInit }) as Transport,
  )
  return client
}

const textOf = async (client: Client, name: string, given: object = {}, onprogress?: () => void) => {
  const asked = { name, arguments: given as Record<string, unknown> }
  const { content } = await client.callTool(asked, undefined, onprogress && { onprogress })
  return (content as { text: string }[])[0]?.text
}

/** Calls a tool as a client without a session. @returns the status, and the message of the response. */
async function single(name: string, tool: string, given: object = {}, key = secret) {
  const response = await fetch(`${front.url}/${name}/sse`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name: tool, arguments: given } }),
  })
  const text = await response.text()
  const data = text.split('\n').findLast((line) => line.startsWith('data: '))
  const message = JSON.parse(data?.slice('data: '.length) ?? text)
  return { status: response.status, message, text: message.result?.content?.[0].text as string | undefined }
}

describe('a program as an upstream', () => {
  it('is called by clients with and without a session', async () => {
    const client = await connect('acme/plain')
    expect(await textOf(client, 'echo', { text: 'in a session' })).toBe('in a session')
    expect((await client.listTools()).tools.map(({ name }) => name)).toContain('echo')
    await client.close()
    expect((await single('acme/plain', 'echo', { text: 'alone' })).text).toBe('alone')
  })

  it('of the official SDK asks its client through the gateway', async () => {
    const client = await connect('acme/official')
    expect(await textOf(client, 'hello')).toBe('hello')
    expect(await textOf(client, 'ask')).toBe('accept')
    await client.close()
    expect((await single('acme/official', 'ask')).message.result).toMatchObject({ isError: true })
  })

  it('gets samples and roots from its client, whose refusal it reads', async () => {
    const sample = { method: 'sampling/createMessage', params: { messages: [], maxTokens: 10 } }
    const roots = { method: 'roots/list', params: {} }
    const able = await connect('acme/plain', secret, { sampling: {}, roots: {} })
    able.setRequestHandler(CreateMessageRequestSchema, () => ({
      ...{ model: 'm', role: 'assistant' as const, content: { type: 'text' as const, text: 'sampled' } },
    }))
    able.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: 'file:///of-client' }] }))
    expect(await textOf(able, 'request', sample)).toContain('sampled')
    expect(await textOf(able, 'request', roots)).toContain('file:///of-client')
    await able.close()
    const unable = await connect('acme/plain')
    expect(await textOf(unable, 'request', sample)).toContain('-32601')
    expect(await textOf(unable, 'request', roots)).toContain('-32601')
    await unable.close()
    const shared = await connect('acme/shared', secret, { sampling: {}, roots: {} })
    for (const asked of [sample, roots]) {
      expect(await textOf(shared, 'request', asked)).toContain('Set its sharing to session')
      expect((await single('acme/plain', 'request', asked)).text).toContain('opened no session, so it cannot be asked')
    }
    await shared.close()
  })

  it('gets samples and roots from a client of 2026-07-28, which repeats its request with the answer', async () => {
    const options = (capabilities: object) => ({
      ...{ path: '/acme/plain/sse', headers: { authorization: `Bearer ${secret}` }, capabilities },
    })
    const request = (asked: object, capabilities: object, more: object = {}) =>
      askModern(front.url, 'tools/call', { name: 'request', arguments: asked, ...more }, options(capabilities))
    await askModern(front.url, 'server/discover', {}, options({}))
    for (const [asked, capabilities, response] of [
      [{ method: 'sampling/createMessage', params: { maxTokens: 1 } }, { sampling: {} }, { content: 'sampled' }],
      [{ method: 'roots/list', params: {} }, { roots: {} }, { roots: [{ uri: 'file:///of-client' }] }],
    ] as const) {
      const { body } = await request(asked, capabilities)
      expect(body.result).toMatchObject({ resultType: 'input_required', inputRequests: { question: asked } })
      const { requestState } = body.result!
      const more = { requestState, inputResponses: { question: response } }
      const answered = await request(asked, capabilities, more)
      expect(JSON.stringify(answered.body.result)).toContain(JSON.stringify(JSON.stringify(response)).slice(1, -1))
      const refused = await request(asked, {})
      expect(JSON.stringify(refused.body.result)).toContain(`does not answer ${asked.method}`)
    }
  })

  it('gets its arguments exactly, without a shell', async () => {
    const odd = ['$(id)', 'a b', '"; echo', '*', '', 'ä\n']
    await register('acme/arguments', { program: plainServer(...odd) })
    expect(JSON.parse((await single('acme/arguments', 'arguments')).text!)).toEqual(odd)
  })

  it('has a process for each session, and one for each key without sessions', async () => {
    const [one, two] = [await connect('acme/plain'), await connect('acme/plain')]
    expect([await textOf(one, 'count'), await textOf(one, 'count'), await textOf(two, 'count')]).toEqual([
      '1',
      '2',
      '1',
    ])
    const other = await newKey()
    const pids = [await single('acme/plain', 'pid'), await single('acme/plain', 'pid')].map(({ text }) => text)
    expect(pids[0]).toBe(pids[1])
    expect((await single('acme/plain', 'pid', {}, other)).text).not.toBe(pids[0])
    const pid = Number(await textOf(one, 'pid'))
    await (one.transport as StreamableHTTPClientTransport).terminateSession()
    await expect.poll(() => isAlive(know(pid))).toBe(false)
    await one.close()
    await two.close()
  })

  it('carries progress, cancellation and changed lists', async () => {
    const client = await connect('acme/plain')
    let progress = 0
    expect(await textOf(client, 'progress', {}, () => (progress += 1))).toBe('done')
    expect(progress).toBe(1)
    const changed = Promise.withResolvers<void>()
    client.setNotificationHandler(ToolListChangedNotificationSchema, () => changed.resolve())
    await textOf(client, 'changed')
    await changed.promise
    const abort = new AbortController()
    const call = client.callTool({ name: 'silent' }, undefined, { signal: abort.signal })
    abort.abort(new Error('no longer needed'))
    await expect(call).rejects.toThrow('no longer needed')
    await expect.poll(() => textOf(client, 'cancelled')).toContain('no longer needed')
    await client.close()
  })

  it('is one process for all keys if it is shared, and passes nothing of one client to another', async () => {
    const other = await newKey()
    const [one, two] = [await connect('acme/shared'), await connect('acme/shared', other)]
    const pid = await textOf(one, 'pid')
    expect(await textOf(two, 'pid')).toBe(pid)
    expect((await single('acme/shared', 'pid')).text).toBe(pid)
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) => textOf(n % 2 ? one : two, 'echo', { text: `${n}` })),
    )
    expect(answers).toEqual(Array.from({ length: 20 }, (_, n) => `${n}`))
    const logged: unknown[] = []
    two.fallbackNotificationHandler = async (notification) => void logged.push(notification.method)
    await textOf(one, 'log')
    await textOf(one, 'changed')
    await expect.poll(() => logged).toEqual(['notifications/tools/list_changed'])
    expect(await textOf(one, 'ask')).toContain('Set its sharing to session')
    await one.close()
    await two.close()
  })

  it('is part of the aggregated endpoint', async () => {
    await refreshUpstream(front.core.adminContext, operator, ref('acme/plain'))
    const answer = await front.post(
      '/v1/mcp',
      { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'acme_plain__echo', arguments: { text: 'all' } } },
      { authorization: `Bearer ${secret}` },
    )
    expect(await answer.text()).toContain('all')
  })

  it('has its credential as a variable, which no answer of an administrator contains', async () => {
    const credential = { in: 'env', name: 'API_TOKEN', values: ['token-of-acme-1234'] } as const
    const view = await register('acme/secret', { credential, env: { REGION: 'eu-of-acme-77' } })
    expect(view.program).toMatchObject({ env_names: ['REGION'] })
    expect(JSON.stringify(view)).not.toMatch(/token-of-acme|eu-of-acme/)
    expect((await single('acme/secret', 'variable', { name: 'API_TOKEN' })).text).toBe('token-of-acme-1234')
    expect((await single('acme/secret', 'variable', { name: 'REGION' })).text).toBe('eu-of-acme-77')
    await update('acme/secret', { credential: { ...credential, values: ['token-of-acme-5678'] } })
    await expect
      .poll(async () => (await single('acme/secret', 'variable', { name: 'API_TOKEN' })).text)
      .toBe('token-of-acme-5678')
    const ended = await single('acme/secret', 'exit')
    expect(ended.message.message).toMatch(/exited with code 3; it wrote: .* fatal: token is \[redacted\]/)
    const tested = await testUpstream(front.core.adminContext, operator, ref('acme/secret'))
    expect(tested).toMatchObject({ server: 'plain 1', stderr: expect.stringContaining('fatal: token is [redacted]') })
    expect(front.lines.join('\n')).not.toContain('token-of-acme')
  })

  it('is stopped with what it has started when it is disabled or removed', async () => {
    await register('acme/stopped')
    const running = async () => Number((await single('acme/stopped', 'pid')).text)
    const first = await running()
    await update('acme/stopped', { enabled: false })
    await expect.poll(async () => (await single('acme/stopped', 'pid')).status).toBe(404)
    await expect.poll(() => isAlive(know(first))).toBe(false)
    await update('acme/stopped', { enabled: true })
    await expect.poll(async () => (await single('acme/stopped', 'pid')).status).toBe(200)
    const second = await running()
    await removeUpstream(front.core.adminContext, operator, ref('acme/stopped'))
    await expect.poll(() => isAlive(know(second))).toBe(false)
    const rows = await front.store.upstreamSandboxes.list()
    const sandboxes = (await front.runner.sandboxes.list()).map(({ sandboxId }) => sandboxId)
    expect(sandboxes.every((id) => rows.some((row) => row.id === id))).toBe(true)
  })

  it('is ended when it is idle, and at the end of its lifetime', async () => {
    await register('acme/idle', { program: { ...plainServer(), idle_ms: 1_000 } })
    const pid = Number((await single('acme/idle', 'pid')).text)
    await expect.poll(() => isAlive(know(pid)), { timeout: 10_000 }).toBe(false)
    expect((await single('acme/idle', 'echo', { text: 'again' })).text).toBe('again')
    await register('acme/lifetime', { program: { ...plainServer(), lifetime_ms: 3_000 } })
    const client = await connect('acme/lifetime')
    const used = Number(await textOf(client, 'pid'))
    await expect(textOf(client, 'silent')).rejects.toThrow('was stopped')
    await expect.poll(() => isAlive(know(used))).toBe(false)
    await client.close()
  })

  it('can be declared, and changes nothing when it is declared again', async () => {
    const declare = async (upstreams: Record<string, UpstreamSettings>) => {
      const orgs = { declared: { upstreams } }
      const options = { prune: false, dryRun: false, knownTools: [] }
      const { changes } = await applyDeclaration(front.core.adminContext, operator, { orgs }, options)
      return changes.filter(({ kind }) => kind === 'upstream').map(({ action, fields }) => [action, fields])
    }
    const settings = { program: plainServer(), env: { REGION: 'eu' } }
    expect(await declare({ 'team/plain': settings })).toEqual([['create', []]])
    expect(await declare({ 'team/plain': settings })).toEqual([])
    const idle = { ...settings, program: { ...settings.program, idle_ms: 5_000 } }
    expect(await declare({ 'team/plain': idle })).toEqual([['update', ['program']]])
    expect(await declare({ 'team/plain': settings })).toEqual([['update', ['program']]])
    await expect(declare({ 'team/plain': { program: { command: '' } } })).rejects.toMatchObject({
      code: 'declaration_invalid',
    })
  })

  it('can reach private addresses only if an administrator of the whole instance permits it', async () => {
    const network = { policy: 'allow', rules: ['10.0.0.0/8'] } as const
    const program = { ...plainServer(), network }
    const ofOrg = { id: 'tok_org', role: 'owner', orgId: org } as const
    const create = (admin: Admin, name: string) =>
      createUpstream(front.core.adminContext, admin, ref(name), { program })
    await expect(create(ofOrg, 'acme/inside')).rejects.toMatchObject({ code: 'forbidden' })
    expect((await create(operator, 'acme/inside')).program).toMatchObject({ network })
  })

  it('is reported in the metrics and to administrators', async () => {
    await single('acme/plain', 'pid')
    const text = await front.metrics.text(undefined)
    expect(text).toMatch(/^glovebox_upstream_programs [1-9]/m)
    expect(text).toMatch(/^glovebox_upstream_program_events_total\{event="start"\} \d+/m)
    const { id } = (await front.store.upstreams.get(org, 'acme/plain'))!
    expect(front.core.runtime.programs).toContainEqual(expect.objectContaining({ upstreamId: id, orgId: org }))
  })

  it('cannot be reached as a sandbox', async () => {
    await single('acme/plain', 'pid')
    const get = (path: string) =>
      fetch(front.url + path, { headers: { authorization: `Bearer ${secret}` } }).then((answer) => answer.json())
    expect(await get('/v1/sandboxes?namespace=*')).toMatchObject({ data: [] })
    for (const { id } of await front.store.upstreamSandboxes.list()) {
      expect(await get(`/v1/sandboxes/${id}`)).toMatchObject({ code: 'sandbox_unknown' })
    }
  })
})

describe('a program that misbehaves', () => {
  it('is understood in spite of garbage, CRLF and lines in pieces', async () => {
    await register('acme/garbage')
    expect((await single('acme/garbage', 'garbage')).text).toBe('clean')
    const { id } = (await front.store.upstreams.get(org, 'acme/garbage'))!
    const status = () => front.core.runtime.programs.find(({ upstreamId }) => upstreamId === id)
    expect(status()).toMatchObject({ skippedLines: 5 })
    const tested = await testUpstream(front.core.adminContext, operator, ref('acme/garbage'))
    expect(tested).toMatchObject({ skipped_lines: 5 })
    expect(await front.metrics.text(undefined)).toMatch(/program_events_total\{event="skipped_line"\} [5-9]/)
    expect((await single('acme/plain', 'halves')).text).toBe('hälften')
  })

  it('is 504 when it does not answer in its time, and continues to serve others', async () => {
    await register('acme/slow', { timeout_ms: 1_000 })
    expect((await single('acme/slow', 'silent')).status).toBe(504)
    expect((await single('acme/slow', 'echo', { text: 'next' })).text).toBe('next')
    expect((await single('acme/slow', 'cancelled')).text).toContain('disconnected')
  })

  it('is ended when it writes a line without end', async () => {
    const { message } = await single('acme/plain', 'endless')
    expect(message.message).toContain('wrote a line of more than 8388608 bytes')
    expect((await single('acme/plain', 'echo', { text: 'new' })).text).toBe('new')
  })

  it('is started again after it ended, later each time, and then refused for a while', async () => {
    await register('acme/crash', {
      program: { command: 'node', args: ['--eval', 'console.error("no config"); process.exit(4)'] },
    })
    const answers = []
    for (let n = 0; n < 8; n++) answers.push(await single('acme/crash', 'echo'))
    expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(502))
    expect(answers[0]!.message.message).toContain('exited with code 4; it wrote: no config')
    expect(answers.at(-1)!.message.message).toContain('in a row')
    const { issues } = await front.core.runtime.health()
    expect(issues).toContainEqual(
      expect.objectContaining({ code: 'upstreams:MCP_UPSTREAM_DOWN', severity: 'warning', entity: 'acme/crash' }),
    )
    const { program } = await register('acme/missing', { program: { command: 'no-such-program-here' } })
    expect(program?.args).toEqual([])
    expect((await single('acme/missing', 'echo')).message.message).toContain('cannot be executed')
  })

  it('is reported when it ends in each session, although each session begins with a call that succeeds', async () => {
    await register('acme/loop')
    for (let crashes = 1; crashes <= 2; crashes++) {
      await expect
        .poll(
          () =>
            connect('acme/loop')
              .then((client) => textOf(client, 'exit'))
              .catch(String),
          { timeout: 20_000 },
        )
        .toContain('exited with code 3')
      expect((await front.core.runtime.figures()).crashes).toMatchObject({ 'acme/loop': crashes })
    }
  })

  it('leaves its session when its sandbox crashes, and is started again', async () => {
    await register('acme/crashing')
    await single('acme/crashing', 'pid')
    const upstream = await front.store.upstreams.get(org, 'acme/crashing')
    const row = await front.store.upstreamSandboxes.get(upstream!.id, '')
    front.runner.sandboxes.crash(row!.id, 'slot_lost')
    expect((await single('acme/crashing', 'echo', { text: 'back' })).text).toBe('back')
  })

  it.each<[string, UpstreamSettings]>([
    ['a url', { url: 'https://example.com/' }],
    ['headers', { headers: { 'X-Key': 'abcdefgh' } }],
    ['oauth', { oauth: {} }],
    ['a credential in a header', { credential: { in: 'header', name: 'X-Key', values: ['abcdefgh'] } }],
    ['no command', { transport: 'stdio', program: { args: ['x'] } }],
    ['NUL in an argument', { program: { command: 'x', args: ['a\0b'] } }],
    [
      'a secret in an argument',
      { program: { command: 'x', args: ['--token=ghp_0123456789abcdefghijABCDEFGHIJ012345'] } },
    ],
    ['too much memory', { program: { command: 'x', memory_bytes: 2 ** 50 } }],
    ['a network rule that is none', { program: { command: 'x', network: { policy: 'allow', rules: ['a b'] } } }],
    ['a variable without a name', { env: { 'A=B': 'x' } }],
    ['servers for a credential that it has not', { program: { command: 'x', credential_hosts: ['example.com'] } }],
  ])('is refused with %s', async (_what, settings) => {
    await expect(register('acme/bad', settings)).rejects.toMatchObject({ code: 'invalid_argument' })
  })

  it('is limited in number for each organization, and makes room for another one when it is unused', async () => {
    const other = (await createOrg(front.core.adminContext, operator, 'many')).id
    const { secret: key } = await createKey(front.core.adminContext, operator, other, { tools: null }, [])
    const open: Client[] = []
    for (let n = 0; n < 5; n++) {
      await createUpstream(
        front.core.adminContext,
        operator,
        { orgId: other, name: `many/n${n}` },
        { program: plainServer() },
      )
    }
    for (let n = 0; n < 4; n++) {
      const client = await connect(`many/n${n}`, key)
      open.push(client)
      void client.callTool({ name: 'silent' }).catch(() => {})
    }
    const refused = await single('many/n4', 'echo', { text: 'x' }, key)
    expect(refused).toMatchObject({ status: 429, message: { message: expect.stringContaining('4 programs of this') } })
    await open[0]!.close()
    await expect
      .poll(async () => (await single('many/n4', 'echo', { text: 'x' }, key)).text, { timeout: 30_000 })
      .toBe('x')
    for (const client of open) await client.close()
  })
})
