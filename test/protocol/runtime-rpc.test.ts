import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createToken, type TokenSettings } from '../../src/core/admin/tokens.ts'
import { roleFor } from '../../src/core/runtime/tool-access.ts'
import { runtimePrompts, toText } from '../../src/tools/runtime/prompts.ts'
import { findRuntimeTool, runtimeTools } from '../../src/tools/runtime/tools.ts'
import { type Front, openFront } from '../support/front.ts'
import { failing, rightInput } from '../support/runtime-inputs.ts'

let front: Front
const tokens: Record<string, string> = {}
beforeAll(async () => {
  front = await openFront(undefined, {
    dev: false,
    trustedProxies: ['127.0.0.1'],
    allowedOrigins: ['https://ops.example'],
  })
  for (const role of ['owner', 'admin', 'member'] as const) tokens[role] = await tokenOf({ role })
})
afterAll(() => front.close())

const tokenOf = async (settings: Omit<TokenSettings, 'name'>): Promise<string> =>
  (await createToken(front.core.adminContext, operator, { name: 'test', ...settings })).secret

interface Answer {
  status: number
  result?: Record<string, unknown>
  error?: { code: number; message: string; data?: { code: string; hint: string } }
  id?: unknown
}

async function send(body: unknown, token = tokens.owner, path = '/runtime/rpc', headers: Record<string, string> = {}) {
  const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const response = await front.post(path, body, { ...authorization, ...headers })
  const text = await response.text()
  return { status: response.status, headers: response.headers, ...(text === '' ? {} : (JSON.parse(text) as Answer)) }
}

const rpc = (method: string, params?: object, token = tokens.owner): Promise<Answer> =>
  send({ jsonrpc: '2.0', id: '1', method, ...(params && { params }) }, token) as Promise<Answer>

/** Calls a tool and returns its report. */
async function call(name: string, given: object = {}, token = tokens.owner): Promise<Record<string, unknown>> {
  const { result, error } = await rpc('tools/call', { name, arguments: given }, token)
  if (error) throw new Error(`${name}: ${error.code} ${error.message}`)
  const [{ text }] = result!.content as [{ text: string }]
  expect(JSON.parse(text)).toEqual(result!.structuredContent)
  return result!.structuredContent as Record<string, unknown>
}

const listed = async (token: string | undefined): Promise<string[]> =>
  ((await rpc('tools/list', undefined, token)).result!.tools as { name: string }[]).map(({ name }) => name)

describe('the runtime endpoint', () => {
  it.each(['/runtime/rpc', '/~bxmcp/boxlang.bxm'])('answers JSON-RPC at %s', async (path) => {
    expect(await send({ jsonrpc: '2.0', id: 'a', method: 'ping' }, tokens.member, path)).toMatchObject({
      ...{ status: 200, id: 'a', result: {} },
    })
  })

  it('answers initialize with a version that the client knows', async () => {
    const { result } = await rpc('initialize', { protocolVersion: '2025-06-18' })
    expect(result).toMatchObject({ protocolVersion: '2025-06-18', serverInfo: { name: 'glovebox-runtime' } })
    expect((await rpc('initialize', { protocolVersion: '1999-01-01' })).result?.protocolVersion).toBe('2024-11-05')
  })

  it('accepts notifications without an answer', async () => {
    const response = await front.post(
      '/runtime/rpc',
      { jsonrpc: '2.0', method: 'notifications/initialized' },
      {
        authorization: `Bearer ${tokens.member}`,
      },
    )
    expect([response.status, await response.text()]).toEqual([202, ''])
  })

  it.each([
    ['invalid JSON', '{', 400, -32700],
    ['an array', '[]', 400, -32600],
    ['another version', { jsonrpc: '1.0', id: 1, method: 'ping' }, 400, -32600],
    ['an unknown method', { jsonrpc: '2.0', id: 1, method: 'tools/drop' }, 200, -32601],
    ['a missing name', { jsonrpc: '2.0', id: 1, method: 'tools/call', params: {} }, 200, -32602],
    ['an unknown tool', { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'nothing' } }, 200, -32001],
    [
      'a tool that fails',
      { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'node_trigger_heap_dump' } },
      200,
      -32000,
    ],
    ['an unknown prompt', { jsonrpc: '2.0', id: 1, method: 'prompts/get', params: { name: 'nothing' } }, 200, -32602],
    ['an unknown resource', { jsonrpc: '2.0', id: 1, method: 'resources/read', params: { uri: 'x://y' } }, 200, -32602],
  ])('answers %s with the code of the protocol', async (_, body, status, code) => {
    expect(await send(body)).toMatchObject({ status, error: { code, message: expect.any(String) } })
  })

  it('refuses callers without a token of the instance in the form of the protocol', async () => {
    const org = await createOrg(front.core.adminContext, operator, 'Acme')
    const key = (await createKey(front.core.adminContext, operator, org.id, {}, [])).secret
    const ofOrg = await tokenOf({ role: 'owner', org_id: org.id })
    const ping = { jsonrpc: '2.0', id: 1, method: 'ping' }
    const refused = (code: string) => ({ status: 401, error: { code: -32002, data: { code } } })
    expect(await send(ping, '')).toMatchObject(refused('token_missing'))
    expect(await send(ping, key)).toMatchObject(refused('token_invalid'))
    expect(await send(ping, `gba_${'x'.repeat(43)}`)).toMatchObject({ status: 401, error: { code: -32002 } })
    expect(await send(ping, ofOrg)).toMatchObject({ status: 403, error: { code: -32002 } })
  })

  it('refuses a body of more than 1 MiB', async () => {
    const params = { name: 'x'.repeat(1024 * 1024) }
    expect(await send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params })).toMatchObject({
      ...{ status: 413, error: { code: -32600 } },
    })
  })

  it('refuses addresses that are not allowed, which trusted proxies forward', async () => {
    const ping = { jsonrpc: '2.0', id: 1, method: 'ping' }
    const from = (address: string) => send(ping, tokens.owner, '/runtime/rpc', { 'x-forwarded-for': address })
    expect(await from('127.0.0.9')).toMatchObject({ status: 200 })
    expect(await from('203.0.113.7')).toMatchObject({
      status: 403,
      error: { code: -32002, data: { code: 'address_not_allowed' } },
    })
    // Over MCP too.
    const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
    expect((await send(list, tokens.owner, '/mcp', { 'x-forwarded-for': '203.0.113.7' })).status).toBe(403)
  })

  it('lets pages of allowed origins call, and no others', async () => {
    const ping = { jsonrpc: '2.0', id: 1, method: 'ping' }
    const allowed = await send(ping, tokens.owner, '/runtime/rpc', { origin: 'https://ops.example' })
    expect(allowed.headers.get('access-control-allow-origin')).toBe('https://ops.example')
    expect(await send(ping, tokens.owner, '/runtime/rpc', { origin: 'https://evil.example' })).toMatchObject({
      ...{ status: 403, error: { code: -32002 } },
    })
  })

  it('needs no token in development mode on loopback, and then only reads', async () => {
    const dev = await openFront()
    try {
      const post = async (method: string, params?: object) => {
        const response = await dev.post('/runtime/rpc', { jsonrpc: '2.0', id: 1, method, params })
        return (await response.json()) as Answer
      }
      expect((await post('tools/call', { name: 'runtime_get_info' })).result).toBeDefined()
      expect((await post('tools/call', { name: 'cache_clear_all' })).error?.code).toBe(-32002)
      expect((await post('tools/call', { name: 'node_get_hot_threads' })).error?.code).toBe(-32002)
    } finally {
      await dev.close()
    }
  })
})

describe('who may call a runtime tool', () => {
  it('depends on what it does', async () => {
    const expected = (roles: string[]) =>
      runtimeTools.filter((tool) => roles.includes(roleFor(tool))).map(({ name }) => name)
    expect(await listed(tokens.member)).toEqual(expected(['member']))
    expect(await listed(tokens.admin)).toEqual(expected(['member', 'admin']))
    expect(await listed(tokens.owner)).toEqual(expected(['member', 'admin', 'owner']))
    const refused = await rpc('tools/call', { name: 'cache_clear_all' }, tokens.member)
    expect(refused).toMatchObject({ status: 403, error: { code: -32002 } })
  })

  it('can be limited for each token by patterns', async () => {
    const limited = await tokenOf({
      role: 'owner',
      runtime_tools: { included: ['cache_*', '*_health'], excluded: ['*_clear*'] },
    })
    const names = await listed(limited)
    expect(names).toContain('cache_get_all')
    expect(names).toContain('system_get_health')
    expect(names.filter((name) => name.includes('_clear') || name.startsWith('node_get_m'))).toEqual([])
    expect((await rpc('tools/call', { name: 'cache_clear_all' }, limited)).error?.code).toBe(-32002)
    expect((await rpc('tools/call', { name: 'jvm_get_memory_info' }, limited)).error?.code).toBe(-32002)
    await expect(tokenOf({ role: 'owner', runtime_tools: { included: ['a b'] } })).rejects.toThrow(
      'runtime_tools.included',
    )
  })

  it('is recorded for every write, and not for reads', async () => {
    const actions = async () =>
      (await front.store.audit.list({ action: 'runtime.call' } as never, 0, 1_000)).rows.map(({ target, details }) => [
        target,
        JSON.parse(details),
      ])
    const before = (await actions()).length
    await call('cache_get_all')
    await call('cache_clear', { cacheName: 'profiles' })
    expect((await actions()).slice(before)).toEqual([['cache_clear', { cacheName: 'profiles' }]])
  })

  it('is the same over MCP, where an admin token has these tools and no others', async () => {
    const mcp = (method: string, params?: object, token = tokens.admin) =>
      send({ jsonrpc: '2.0', id: 1, method, ...(params && { params }) }, token, '/mcp') as Promise<Answer>
    const tools = ((await mcp('tools/list')).result!.tools as { name: string }[]).map(({ name }) => name)
    expect(tools).toEqual(await listed(tokens.admin))
    expect(
      (await mcp('tools/call', { name: 'system_get_health', arguments: {} })).result?.structuredContent,
    ).toHaveProperty('score')
    expect((await mcp('tools/call', { name: 'sandbox_execute', arguments: { code: '1' } })).error?.code).toBe(-32602)
    expect((await mcp('tools/call', { name: 'node_trigger_heap_dump', arguments: {} })).error?.code).toBe(-32602)
    // A key has none of them, whatever it asks for.
    const org = await createOrg(front.core.adminContext, operator, 'Keys')
    const key = (await createKey(front.core.adminContext, operator, org.id, {}, [])).secret
    const response = await front.post(
      '/mcp?toolsets=runtime',
      { jsonrpc: '2.0', id: 1, method: 'tools/list' },
      { authorization: `Bearer ${key}` },
    )
    expect(((await response.json()) as { result: { tools: object[] } }).result.tools).toEqual([])
    // Nothing else accepts the token.
    expect(
      (await front.post('/v1/sandbox/execute', { code: '1' }, { authorization: `Bearer ${tokens.owner}` })).status,
    ).toBe(401)
  })
})

describe('every runtime tool', () => {
  const succeeding = runtimeTools.filter(({ name }) => !Object.hasOwn(failing, name)).map(({ name }) => name)

  it.each(succeeding)('%s answers with an object', async (name) => {
    expect(Object.keys(await call(name, rightInput[name])).length).toBeGreaterThan(0)
  })

  it.each(Object.entries(failing))('%s names what is wrong', async (name, [given, code]) => {
    expect((await rpc('tools/call', { name, arguments: given })).error?.code).toBe(code)
  })

  it.each(runtimeTools.map(({ name }) => name))('%s refuses arguments that it does not have', async (name) => {
    const { error } = await rpc('tools/call', {
      name,
      arguments: { ...(rightInput[name] ?? failing[name]?.[0]), unheard_of: 1 },
    })
    expect(error).toMatchObject({ code: -32602, message: expect.stringContaining('unheard_of') })
  })

  it('refuses arguments of another type, and names that do not exist', async () => {
    for (const [name, given] of Object.entries(rightInput)) {
      const [argument] = Object.keys(given)
      const wrong = await rpc('tools/call', { name, arguments: { ...given, [argument!]: { not: 'this' } } })
      expect([name, wrong.error?.code]).toEqual([name, -32602])
    }
    for (const name of [
      'cache_get_stats',
      'cache_clear',
      'datasource_get',
      'scheduler_run_task',
      'scheduler_get',
      'executor_get_info',
      'module_get_info',
      'routes_get_route',
      'runtime_get_config_value',
    ]) {
      const [argument] = Object.keys(rightInput[name]!)
      const unknown = await rpc('tools/call', { name, arguments: { [argument!]: 'nothing' } })
      expect([name, unknown.error?.code]).toEqual([name, -32602])
      // The tool with the names exists.
      expect(runtimeTools.map((tool) => `Call ${tool.name} for the names.`)).toContain(unknown.error?.data?.hint)
    }
    expect((await rpc('tools/call', { name: 'requests_get_slow_requests', arguments: { since: 'yesterday' } })).error)
      // It would be compared with times, and hide all of them.
      .toMatchObject({ code: -32602, message: expect.stringContaining('since must be a time') })
    expect((await rpc('tools/call', { name: 'app_stop', arguments: { appName: 'sbx_none' } })).error?.message).toBe(
      'The active run or named sandbox sbx_none does not exist.',
    )
    const misspelled = await rpc('tools/call', { name: 'system_get_helth' })
    expect(misspelled.error?.message).toContain('Did you mean system_get_health?')
  })

  it('is also found under its other names', async () => {
    for (const name of ['jvm_get_memory_info', 'jvm_trigger_gc', 'webserver_get_stats', 'logging_get_loggers']) {
      expect((await rpc('tools/call', { name })).result?.isError).toBe(false)
    }
  })
})

describe('the prompts', () => {
  it('name tools that exist, with arguments that they accept', () => {
    for (const prompt of runtimePrompts) {
      for (const { tool, with: given = {} } of prompt.steps) {
        const found = findRuntimeTool(tool)
        expect([prompt.name, tool, found?.name]).toEqual([prompt.name, tool, tool])
        const known = Object.keys((found!.listing.inputSchema as { properties: object }).properties)
        expect([tool, Object.keys(given).filter((name) => !known.includes(name))]).toEqual([tool, []])
        const named = Object.values(given).flatMap((value) =>
          [...String(value).matchAll(/\{(\w+)\}/g)].map(([, name]) => name),
        )
        expect(named.filter((name) => !prompt.arguments?.some((one) => one.name === name))).toEqual([])
      }
    }
  })

  it('call tools that succeed with the values of their arguments', async () => {
    const { result } = await rpc('prompts/get', { name: 'slow_sql_diagnosis', arguments: { limit: '7' } })
    const [{ content }] = result!.messages as [{ content: { text: string } }]
    expect(content.text).toContain('sql_get_slow_queries with {"limit":7}')
    expect(await call('sql_get_slow_queries', { limit: 7 })).toHaveProperty('calls')
  })

  it('can all be read, and leave out arguments without a value', async () => {
    const { result } = await rpc('prompts/list')
    const prompts = result!.prompts as { name: string; arguments: { name: string; required: boolean }[] }[]
    expect(prompts.length).toBe(runtimePrompts.length)
    for (const { name, arguments: known } of prompts) {
      const given = Object.fromEntries(known.filter(({ required }) => required).map((one) => [one.name, 'value']))
      expect((await rpc('prompts/get', { name, arguments: given })).result?.messages).toHaveLength(1)
    }
    const errors = runtimePrompts.find(({ name }) => name === 'investigate_errors')!
    expect(toText(errors, {})).toContain('logging_read_entries with {"level":"warn","limit":50}')
    expect((await rpc('prompts/get', { name: 'performance_troubleshooting' })).error?.code).toBe(-32602)
    expect((await rpc('prompts/get', { name: 'slow_sql_diagnosis', arguments: { limit: 7 } })).error?.code).toBe(-32602)
  })
})

describe('the resources', () => {
  it('can all be read', async () => {
    const { result } = await rpc('resources/list')
    for (const { uri, mimeType } of result!.resources as { uri: string; mimeType: string }[]) {
      const read = await rpc('resources/read', { uri })
      const [contents] = read.result!.contents as [{ uri: string; mimeType: string; text: string }]
      expect(contents).toMatchObject({ uri, mimeType })
      if (mimeType === 'application/json') expect(JSON.parse(contents.text)).toBeTypeOf('object')
    }
    expect((await rpc('resources/templates/list')).result?.resourceTemplates).toHaveLength(2)
  })
})

describe('what is remembered', () => {
  it('includes slow requests with their trace ID, slow statements without parameters, and routes', async () => {
    await call('requests_set_config', { threshold_ms: 1 })
    await call('sql_set_config', { threshold_ms: 1 })
    const run = await fetch(`${front.url}/healthz`)
    expect(run.status).toBe(200)
    front.metrics.recent.queries.count(5, false, () => ({ what: 'select ?' }))
    await call('node_get_hot_threads', { durationMs: 100 })
    const { calls } = (await call('requests_get_slow_requests')) as { calls: { what: string; trace_id: string }[] }
    // Others can be slow on a busy machine.
    const posted = { what: 'POST /runtime/rpc', trace_id: expect.stringMatching(/^\w+/), status: 200 }
    expect(calls).toContainEqual(expect.objectContaining(posted))
    const slow = expect.arrayContaining([expect.objectContaining({ what: 'select ?' })])
    expect(await call('sql_get_slow_queries')).toMatchObject({ calls: slow })
    expect(await call('routes_get_route', { route: 'GET /healthz' })).toMatchObject({ requests: 1, errors: 0 })
    await call('requests_clear')
    expect(((await call('requests_get_slow_requests', { since: '9999' })) as { calls: object[] }).calls).toEqual([])
  })

  it('lets one expensive tool work at a time, and returns a profile of allocations again within five minutes', async () => {
    const own = await openFront(undefined, { dev: false })
    const { secret } = await createToken(own.core.adminContext, operator, { name: 'test', role: 'owner' })
    const profile = async (name: string, durationMs: number) => {
      const params = { name, arguments: { process: 'front', durationMs, topN: 1 } }
      const body = { jsonrpc: '2.0', id: '1', method: 'tools/call', params }
      const response = await own.post('/runtime/rpc', body, { authorization: `Bearer ${secret}` })
      return (await response.json()) as Answer
    }
    const first = profile('node_get_top_allocators', 400)
    const second = await profile('node_get_hot_threads', 100)
    expect(second.error).toMatchObject({ code: -32000, data: { code: 'runtime_busy' } })
    const report = { front: { duration_ms: 400, seconds_ago: expect.any(Number) } }
    expect((await first).result?.structuredContent).toMatchObject(report)
    const again = (await profile('node_get_top_allocators', 100)).result?.structuredContent as {
      front: { allocators: object[] }
    }
    expect(again).toMatchObject(report)
    // A process that does little may have allocated less than what lies between two samples.
    expect(again.front.allocators.length).toBeLessThanOrEqual(1)
    for (const durationMs of [100, 110]) {
      const fresh = (await profile('node_get_hot_threads', durationMs)).result?.structuredContent
      expect(fresh).toMatchObject({ front: { duration_ms: durationMs, hot_functions: expect.any(Array) } })
    }
    await own.close()
  })

  it('requires a confirmation to pause what revokes access', async () => {
    const refused = await rpc('tools/call', { name: 'scheduler_pause_task', arguments: { taskName: 'retire_keys' } })
    expect(refused.error).toMatchObject({ code: -32602, message: expect.stringContaining('confirm') })
    await call('scheduler_pause_task', { taskName: 'retire_keys', confirm: true })
    expect(await call('scheduler_get_health')).toMatchObject({
      issues: [{ code: 'SCHEDULER_TASK_PAUSED', entity: 'retire_keys' }],
    })
    await call('scheduler_resume_task', { taskName: 'retire_keys' })
    expect(await call('scheduler_get_health')).toMatchObject({ status: 'healthy', score: 100, issues: [] })
  })
})
