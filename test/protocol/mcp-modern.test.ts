import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { conformanceOffers } from '../conformance/inventory.ts'
import { type Front, openFront } from '../support/front.ts'
import { askModern, type ModernOptions, sendModern } from '../support/modern.ts'

let front: Front
let fixture: Front
beforeAll(async () => {
  front = await openFront()
  fixture = await openFront(undefined, {}, conformanceOffers())
})
afterAll(async () => {
  await front.close()
  await fixture.close()
})

const ask = (method: string, params?: Record<string, unknown>, options?: ModernOptions) =>
  askModern(front.url, method, params, options)
const execute = (args: object, options?: ModernOptions) =>
  ask('tools/call', { name: 'sandbox_execute', arguments: args }, options)
const meta = (name: string, value: unknown) => ({ [`io.modelcontextprotocol/${name}`]: value })

describe('the 2026-07-28 protocol', () => {
  it('describes the server, its versions and its capabilities', async () => {
    const { status, body, headers } = await ask('server/discover')
    expect(status).toBe(200)
    expect(headers.get('mcp-session-id')).toBeNull()
    expect(body.result).toMatchObject({
      resultType: 'complete',
      supportedVersions: ['2026-07-28'],
      capabilities: {
        tools: { listChanged: false },
        resources: {},
        extensions: { 'io.modelcontextprotocol/tasks': {} },
      },
      cacheScope: 'private',
      _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'glovebox' } },
    })
  })

  it('needs no initialization, and offers none', async () => {
    expect((await execute({ code: 'print(6 * 7)' })).body.result).toMatchObject({ isError: false })
    for (const method of ['initialize', 'ping', 'logging/setLevel', 'tasks/list', '__proto__', 'prompts/list']) {
      const { status, body } = await ask(method)
      expect([method, status, body.error?.code]).toEqual([method, 404, -32601])
    }
  })

  it('supports only POST', async () => {
    for (const method of ['GET', 'DELETE']) {
      const headers = { accept: 'text/event-stream', 'mcp-protocol-version': '2026-07-28', 'mcp-session-id': 'x' }
      const { status, headers: answered } = await fetch(`${front.url}/mcp`, { method, headers })
      expect([method, status, answered.get('allow')]).toEqual([method, 405, 'POST'])
    }
  })

  it('accepts notifications without a response', async () => {
    const body = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } }
    const response = await front.post('/mcp', body, { 'mcp-protocol-version': '2026-07-28' })
    expect([response.status, await response.text()]).toEqual([202, ''])
  })

  it('offers the limits of the key as a resource', async () => {
    const { body } = await ask('resources/read', { uri: 'glovebox://limits' })
    expect(body.result).toMatchObject({ cacheScope: 'private', contents: [{ uri: 'glovebox://limits' }] })
    const [contents] = (body.result?.contents ?? []) as { text: string }[]
    expect(JSON.parse(contents?.text ?? '')).toMatchObject({ memory_bytes: 512 * 1024 * 1024, timeout_max_ms: 60_000 })
  })
})

describe('headers that contradict the body', () => {
  const mismatches: [string, ModernOptions][] = [
    ['no version', { headers: { 'mcp-protocol-version': undefined } }],
    ['another version', { headers: { 'mcp-protocol-version': '2025-11-25' } }],
    ['no method', { headers: { 'mcp-method': undefined } }],
    ['another method', { headers: { 'mcp-method': 'tools/list' } }],
    ['a method in capitals', { headers: { 'mcp-method': 'TOOLS/CALL' } }],
    ['no name', { headers: { 'mcp-name': undefined } }],
    ['another name', { headers: { 'mcp-name': 'other' } }],
    ['a name that is not base64', { headers: { 'mcp-name': '=?base64?c2FuZGJve!?=' } }],
    ['two names', { headers: { 'mcp-name': 'sandbox_execute, other' } }],
  ]
  for (const [what, options] of mismatches) {
    it(`are rejected before anything runs: ${what}`, async () => {
      const { status, body } = await execute({ code: 'print(1)' }, { ...options, id: 'q' })
      expect([status, body.error?.code, body.id]).toEqual([400, -32020, 'q'])
    })
  }

  it('are compared after base64 decoding and trimming', async () => {
    const encoded = `=?base64?${Buffer.from('sandbox_execute').toString('base64')}?=`
    for (const name of [encoded, '  sandbox_execute ']) {
      expect((await execute({ code: 'print(1)' }, { headers: { 'mcp-name': name } })).status).toBe(200)
    }
  })
})

describe('an incomplete envelope', () => {
  it('is rejected with the name of the field', async () => {
    const lacking: [ModernOptions, string][] = [
      [{ meta: meta('clientCapabilities', undefined) }, 'clientCapabilities'],
      [{ meta: meta('clientCapabilities', []) }, 'clientCapabilities'],
      [{ meta: meta('protocolVersion', 7) }, 'protocolVersion'],
      [{ meta: meta('logLevel', 'loud') }, 'logLevel'],
    ]
    for (const [options, field] of lacking) {
      const { status, body } = await ask('tools/list', {}, options)
      expect([field, status, body.error?.code, body.error?.message.includes(field)]).toEqual([field, 400, -32602, true])
    }
  })

  it('is rejected with the supported versions', async () => {
    const options = { meta: meta('protocolVersion', '2027-01-01'), headers: { 'mcp-protocol-version': '2027-01-01' } }
    expect(await ask('tools/list', {}, options)).toMatchObject({
      status: 400,
      body: { error: { code: -32022, data: { requested: '2027-01-01', supported: ['2026-07-28'] } } },
    })
  })

  it('cannot be a batch', async () => {
    const response = await front.post('/mcp', [{ jsonrpc: '2.0', id: 1, method: 'tools/list' }], {
      'mcp-protocol-version': '2026-07-28',
    })
    expect([response.status, ((await response.json()) as { error: { code: number } }).error.code]).toEqual([
      400, -32600,
    ])
  })
})

describe('a tool call', () => {
  it('explains invalid arguments to the model, as a result', async () => {
    const { status, body } = await execute({ code: 'x', timeout: 'soon' })
    expect(status).toBe(200)
    expect(body.result).toMatchObject({ resultType: 'complete', isError: true })
    expect(JSON.stringify(body.result)).toContain('timeout must be an integer')
    expect((await ask('tools/call', { name: 'nope' })).body.error?.code).toBe(-32602)
  })

  it('streams output to a client with a progress token', async () => {
    const code = 'echo one; sleep 0.2; echo two'
    const { messages, body } = await execute({ code, language: 'bash' }, { meta: { progressToken: 't' } })
    expect(messages.map(({ method }) => method)).toEqual(['notifications/progress', 'notifications/progress'])
    const steps = messages.map(({ params }) => params.progress as number)
    expect(steps).toEqual([...new Set(steps)].sort((a, b) => a - b))
    expect(body.result?.structuredContent).toMatchObject({ stdout: 'one\ntwo\n' })
    expect((await execute({ code, language: 'bash' })).messages).toEqual([])
  })

  it('is cancelled when its client disconnects', async () => {
    const client = new AbortController()
    const params = { name: 'sandbox_execute', arguments: { code: 'sleep 60', language: 'bash' } }
    const asked = sendModern(front.url, 'tools/call', params, { signal: client.signal }).catch(() => 'gone')
    await vi.waitFor(async () => expect(await front.runner.list()).toMatchObject([{ state: 'running' }]))
    const [run] = await front.runner.list()
    client.abort()
    expect(await asked).toBe('gone')
    await vi.waitFor(async () => {
      expect((await front.store.runs.get(run?.runId ?? ''))?.ending).toEqual({ kind: 'cancelled' })
    })
  })

  it('logs at the level that its request names, and not without one', async () => {
    const { messages } = await execute({ code: 'print(1)' }, { meta: meta('logLevel', 'debug') })
    expect(messages).toMatchObject([
      {
        method: 'notifications/message',
        params: { level: 'debug', data: { trace_id: expect.stringMatching(/^trc_/) } },
      },
    ])
    expect((await execute({ code: 'print(1)' }, { meta: meta('logLevel', 'error') })).messages).toEqual([])
  })
})

describe('the trace context of a client', () => {
  it('appears in the log entries of its request, when it is valid', async () => {
    const trace = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
    await ask('tools/list', {}, { meta: { traceparent: trace } })
    await ask('tools/list', {}, { meta: { traceparent: 'x\n"level":"fatal"' } })
    const traced = front.lines.filter((line) => line.includes('traceparent'))
    expect(traced.map((line) => JSON.parse(line))).toMatchObject([{ traceparent: trace, method: 'tools/list' }])
  })
})

describe('a sealed request state', () => {
  const tool = 'test_input_required_result_multi_round'
  const capabilities = { elicitation: {} }
  const round = (more: object = {}, options: ModernOptions = {}) =>
    askModern(fixture.url, 'tools/call', { name: tool, arguments: {}, ...more }, { capabilities, ...options })
  const answer = (name: string, content: object) => ({ inputResponses: { [name]: { action: 'accept', content } } })

  it('carries answers from round to round', async () => {
    const first = await round()
    expect(first.body.result).toMatchObject({ resultType: 'input_required', inputRequests: { step1: {} } })
    const requestState = first.body.result?.requestState
    const second = await round({ ...answer('step1', { name: 'Ada' }), requestState })
    expect(Object.keys(second.body.result?.inputRequests as object)).toEqual(['step2'])
    const last = await round({ ...answer('step2', { color: 'red' }), requestState: second.body.result?.requestState })
    expect(JSON.stringify(last.body.result)).toContain('Ada')
  })

  it('is accepted only with its own request, and cannot be read or changed', async () => {
    const state = (await round()).body.result?.requestState as string
    expect(Buffer.from(state, 'base64url').toString('latin1')).not.toContain('step')
    const changed = `${state.slice(0, -2)}${state.endsWith('AA') ? 'BB' : 'AA'}`
    for (const requestState of [changed, `${state}x`, `${state}=`, '', 'x', state.slice(4), 7]) {
      const { body } = await round({ ...answer('step1', { name: 'Ada' }), requestState })
      expect([requestState, body.error?.code]).toEqual([requestState, -32602])
    }
    const elsewhere = { name: 'test_input_required_result_request_state', arguments: {}, requestState: state }
    expect((await askModern(fixture.url, 'tools/call', elsewhere, { capabilities })).body.error?.code).toBe(-32602)
    const otherArguments = { arguments: { a: 1 }, requestState: state }
    expect((await round(otherArguments)).body.error?.code).toBe(-32602)
  })

  it('is not needed for a client that cannot answer', async () => {
    const { status, body } = await round({}, { capabilities: {} })
    expect([status, body.error]).toMatchObject([
      400,
      { code: -32021, data: { requiredCapabilities: { elicitation: {} } } },
    ])
  })
})

describe('a subscription', () => {
  it('acknowledges the available notifications, and ends with the server', async () => {
    const own = await openFront(undefined, {}, conformanceOffers())
    const wanted = { toolsListChanged: true, resourceSubscriptions: ['test://watched-resource'], unknown: true }
    const response = await sendModern(own.url, 'subscriptions/listen', { notifications: wanted }, { id: 'sub' })
    await askModern(own.url, 'tools/call', { name: 'test_trigger_prompt_change', arguments: {} })
    await askModern(own.url, 'tools/call', { name: 'test_trigger_tool_change', arguments: {} })
    await sleep(50)
    await own.close()
    const messages = (await response.text()).split('\n').filter((line) => line.startsWith('data: '))
    expect(messages.map((line) => JSON.parse(line.slice('data: '.length)))).toMatchObject([
      {
        method: 'notifications/subscriptions/acknowledged',
        params: {
          notifications: { toolsListChanged: true, resourceSubscriptions: ['test://watched-resource'] },
          _meta: { 'io.modelcontextprotocol/subscriptionId': 'sub' },
        },
      },
      {
        method: 'notifications/tools/list_changed',
        params: { _meta: { 'io.modelcontextprotocol/subscriptionId': 'sub' } },
      },
      { id: 'sub', result: { resultType: 'complete' } },
    ])
  })

  it('does not offer notifications that never occur', async () => {
    const client = new AbortController()
    const notifications = { toolsListChanged: true, promptsListChanged: true }
    const response = await sendModern(front.url, 'subscriptions/listen', { notifications }, { signal: client.signal })
    const { value } = (await response.body?.getReader().read()) ?? {}
    client.abort()
    expect(new TextDecoder().decode(value)).toContain('"notifications":{}')
  })
})
