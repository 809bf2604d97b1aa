import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type Front, openFront } from '../support/front.ts'

let front: Front
beforeAll(async () => {
  front = await openFront()
})
afterAll(async () => {
  await front.close()
})

interface Answer {
  status: number
  headers: Headers
  body: {
    id?: unknown
    result?: Record<string, unknown>
    error?: { code: number; message: string; data?: Record<string, unknown> }
  }
}

async function ask(message: unknown, headers: Record<string, string> = {}, path = '/mcp'): Promise<Answer> {
  const response = await front.post(path, message, headers)
  return { status: response.status, headers: response.headers, body: JSON.parse((await response.text()) || '{}') }
}

const request = (method: string, params?: unknown, id: unknown = 1) => ({ jsonrpc: '2.0', id, method, params })
const call = (args: unknown, id: unknown = 1) => request('tools/call', { name: 'sandbox_execute', arguments: args }, id)
const version = (name: string) => ({ 'mcp-protocol-version': name })
const legacyVersions = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']

describe('initialize', () => {
  it('returns the shape that clients know', async () => {
    const { status, body } = await ask(
      request('initialize', {
        protocolVersion: '2025-11-25',
        capabilities: {},
        clientInfo: { name: 'a', version: '1' },
      }),
    )
    expect(status).toBe(200)
    expect(body).toMatchObject({
      jsonrpc: '2.0',
      id: 1,
      result: {
        protocolVersion: '2025-11-25',
        capabilities: { tools: { listChanged: false } },
        serverInfo: { name: 'glovebox', version: '0.0.0-test' },
        instructions: expect.stringContaining('sandbox_execute'),
      },
    })
  })

  it('accepts every supported version, and offers the latest otherwise', async () => {
    for (const asked of legacyVersions) {
      const { body } = await ask(request('initialize', { protocolVersion: asked }))
      expect(body.result?.protocolVersion).toBe(asked)
    }
    for (const asked of ['2026-07-28', '1999-01-01', 7, undefined]) {
      const { body } = await ask(request('initialize', { protocolVersion: asked }))
      expect(body.result?.protocolVersion).toBe('2025-11-25')
    }
  })

  it('is optional', async () => {
    expect((await ask(request('tools/list'))).body.result?.tools).toHaveLength(4)
    expect((await ask(call({ code: 'print(1)' }))).body.result?.isError).toBe(false)
  })

  it('creates no session', async () => {
    const { headers } = await ask(request('initialize', { protocolVersion: '2025-11-25' }))
    expect(headers.get('mcp-session-id')).toBeNull()
    expect((await ask(request('ping'), { 'mcp-session-id': 'stale' })).status).toBe(200)
  })
})

describe('the other methods', () => {
  it('ping returns an empty result, for every type of id', async () => {
    for (const id of [1, 0, -7, 1.5, 'a', '', '\u0000"\\']) {
      expect((await ask(request('ping', undefined, id))).body).toEqual({ jsonrpc: '2.0', id, result: {} })
    }
  })

  it('notifications are accepted without a response, known or not', async () => {
    for (const method of ['notifications/initialized', 'notifications/cancelled', 'notifications/of-tomorrow']) {
      const response = await front.post('/mcp', { jsonrpc: '2.0', method })
      expect([response.status, await response.text()]).toEqual([202, ''])
    }
  })

  it('responses are accepted, since some clients send them', async () => {
    expect((await front.post('/mcp', { jsonrpc: '2.0', id: 1, result: {} })).status).toBe(202)
  })

  it('an unknown cursor is rejected', async () => {
    expect((await ask(request('tools/list', { cursor: 'x' }))).body.error?.code).toBe(-32602)
    expect((await ask(request('tools/list', { cursor: '' }))).body.result?.tools).toHaveLength(4)
  })

  it('toolsets limit what is listed and callable', async () => {
    const narrowed = '/mcp?toolsets=files'
    expect((await ask(request('tools/list'), {}, narrowed)).body.result?.tools).toEqual([])
    expect((await ask(call({ code: 'print(1)' }), {}, narrowed)).body.error?.message).toContain('Unknown tool')
    const unknown = await front.post('/mcp?toolsets=everything', request('tools/list'))
    const { error } = (await unknown.json()) as { error: { data: { error: string } } }
    expect([unknown.status, error.data.error]).toEqual([400, 'validation_error'])
  })

  it('tools that the organization has disabled are hidden from list, call and REST alike', async () => {
    const own = await openFront()
    const list = async () => {
      const response = await own.post('/mcp?toolsets=execute,executions', request('tools/list'))
      return ((await response.json()) as { result: { tools: { name: string }[] } }).result.tools.map(({ name }) => name)
    }
    expect(await list()).toContain('sandbox_execute')
    await own.store.hiddenTools.hide('org_dev', 'sandbox_execute')
    await vi.waitFor(async () => expect(await list()).not.toContain('sandbox_execute'), 5_000)
    expect(await list()).toContain('execution_get')
    const called = (await (await own.post('/mcp', call({ code: 'print(1)' }))).json()) as { error: { message: string } }
    expect(called.error.message).toContain('Unknown tool')
    const rest = await own.post('/v1/sandbox/execute', { code: 'print(1)' })
    expect([rest.status, ((await rest.json()) as { message: string }).message]).toEqual([
      403,
      "This key does not have the capability 'execute' (granted by sandbox_execute).",
    ])
    await own.store.hiddenTools.show('org_dev', 'sandbox_execute')
    await vi.waitFor(async () => expect(await list()).toContain('sandbox_execute'), 5_000)
    await own.close()
  })

  it('an unknown toolset is named', async () => {
    const { status, body } = await ask(request('tools/unknown'))
    expect(status).toBe(200)
    expect(body.error).toMatchObject({
      code: -32601,
      message: expect.stringContaining('Method not found: tools/unknown'),
    })
    for (const method of ['constructor', '__proto__', 'toString', 'prompts/list', 'server/discover']) {
      expect((await ask(request(method))).body.error?.code).toBe(-32601)
    }
  })
})

describe('a call of sandbox_execute', () => {
  it('returns text for a model and fields for a program', async () => {
    const { body } = await ask(call({ code: 'echo out; echo err >&2; exit 3', language: 'bash' }))
    expect(body.result).toMatchObject({
      content: [
        {
          type: 'text',
          text: '## Execution Result\n\n**stdout:**\n```\nout\n```\n\n**stderr:**\n```\nerr\n```\n\n**Exit code:** 3',
        },
      ],
      structuredContent: {
        ending: { kind: 'exited', code: 3 },
        exit_code: 3,
        stdout: 'out\n',
        stderr: 'err\n',
        trace_id: expect.stringMatching(/^trc_/),
      },
      isError: true,
    })
  })

  it('accepts language, variables, standard input and timeout', async () => {
    const code = 'console.log(process.env.A, process.env.FROM_PROFILE, require("fs").readFileSync(0, "utf8"))'
    const { body } = await ask(call({ code, language: 'node', env_vars: { A: 'a' }, stdin: 'in', timeout: 7 }))
    expect(body.result?.structuredContent).toMatchObject({ stdout: 'a profile in\n' })
  })

  it('reports the ending of a run that did not exit', async () => {
    const { body } = await ask(call({ code: 'echo first; sleep 60', language: 'bash', timeout: 1 }))
    expect(body.result).toMatchObject({
      isError: true,
      structuredContent: { ending: { kind: 'timed_out', limit_ms: 1000 }, exit_code: 124, stdout: 'first\n' },
    })
    expect(JSON.stringify(body.result?.content)).toContain('**Ended:** killed after 1 s (timed out)')
  })

  it('rejects invalid arguments as an error before 2025-11-25 and as a result since then', async () => {
    const { status, body } = await ask(call({ code: 'print(1)', language: 'ruby' }))
    expect(status).toBe(200)
    expect(body.error).toMatchObject({ code: -32602, message: expect.stringContaining('must be one of python, node') })
    const later = await ask(call({ code: 'print(1)', language: 'ruby' }), version('2025-11-25'))
    expect(later.body.result).toMatchObject({
      isError: true,
      content: [{ type: 'text', text: expect.stringContaining('must be one of python, node') }],
    })
  })

  it('rejects what the profile does not allow, and names the limit', async () => {
    const message = async (args: object) => (await ask(call({ code: 'x', ...args }))).body.error?.message
    expect(await message({ timeout: 61 })).toContain('the maximum in this profile is 60 s')
    expect(await message({ thread_id: 't' })).toContain('thread_id is not supported')
    expect(await message({ env_vars: { PATH: '/' } })).toContain('env_vars["PATH"] is reserved')
    expect(await message({ code: '' })).toContain('code must be between')
  })

  it('requires a known tool name, in every version', async () => {
    for (const name of ['nope', '__proto__', 'toString', '']) {
      const { body } = await ask(request('tools/call', { name, arguments: {} }), version('2025-11-25'))
      expect(body.error).toMatchObject({ code: -32602, message: expect.stringContaining('Unknown tool') })
    }
    expect((await ask(request('tools/call', {}))).body.error?.code).toBe(-32602)
    expect((await ask(request('tools/call', { name: 'sandbox_execute' }))).body.error?.message).toContain(
      'code is required',
    )
  })

  it('returns 503 with Retry-After when no place is free', async () => {
    front.runner.maxRuns = 0
    const { status, headers, body } = await ask(call({ code: 'print(1)' }, 'q'))
    front.runner.maxRuns = 32
    expect([status, headers.get('retry-after')]).toEqual([503, '2'])
    expect(body).toMatchObject({
      id: 'q',
      error: { code: -32000, message: expect.stringContaining('Retry in 2 s') },
    })
  })
})

describe('the protocol version', () => {
  it('is taken from the header, if present', async () => {
    for (const name of legacyVersions) expect((await ask(request('ping'), version(name))).status).toBe(200)
  })

  it('is rejected when unknown', async () => {
    for (const name of ['2025-01-01', 'latest', '2025-06-18, 2025-06-18', '1']) {
      const { status, body } = await ask(request('ping'), version(name))
      expect([name, status, body.error?.code]).toEqual([name, 400, -32602])
    }
  })

  it('can be 2026-07-28 in the header of initialize, which negotiates anyway', async () => {
    expect((await ask(request('initialize', {}), version('2026-07-28'))).body.result).toBeDefined()
  })
})

describe('a batch', () => {
  const batch = [
    request('ping', undefined, 1),
    { jsonrpc: '2.0', method: 'notifications/initialized' },
    call({ code: 'print(2)' }, 2),
  ]

  it('returns the responses of its requests up to 2025-03-26', async () => {
    for (const headers of [{}, version('2025-03-26'), version('2024-11-05')]) {
      const response = await front.post('/mcp', batch, headers)
      expect(response.status).toBe(200)
      expect(await response.json()).toMatchObject([
        { id: 1, result: {} },
        { id: 2, result: { isError: false } },
      ])
    }
  })

  it('is rejected in later versions', async () => {
    for (const name of ['2025-06-18', '2025-11-25']) {
      const { status, body } = await ask(batch, version(name))
      expect([status, body.error?.code]).toEqual([400, -32600])
    }
  })

  it('of notifications only has no response', async () => {
    const response = await front.post('/mcp', [batch[1], batch[1]])
    expect([response.status, await response.text()]).toEqual([202, ''])
  })

  it('is rejected when it is empty or too long', async () => {
    expect((await ask([])).body.error?.code).toBe(-32600)
    expect((await ask(Array.from({ length: 17 }, () => batch[0]))).body.error?.message).toContain('at most 16')
  })

  it('returns an error for each invalid member', async () => {
    const response = await front.post('/mcp', [7, [], request('initialize', {}, 3), request('ping', undefined, 4)])
    expect(await response.json()).toMatchObject([
      { id: null, error: { code: -32600 } },
      { id: null, error: { code: -32600 } },
      { id: 3, error: { code: -32600, message: expect.stringContaining('initialize cannot be part of a batch') } },
      { id: 4, result: {} },
    ])
  })
})
