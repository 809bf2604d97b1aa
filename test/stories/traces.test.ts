import { writeFileSync } from 'node:fs'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Glovebox, Place } from '../support/glovebox.ts'
import { newKey, type OwnKey, runCommand } from '../support/keys.ts'
import { openSseUpstream, type SseUpstream } from '../support/sse-upstream.ts'
import { plainServer } from '../support/stdio-upstream.ts'
import { openStatefulUpstream, openStatelessUpstream, type TestUpstream } from '../support/upstreams.ts'

interface OtlpSpan {
  traceId: string
  spanId: string
  parentSpanId?: string
  name: string
  kind: number
  startTimeUnixNano: string
  endTimeUnixNano: string
  attributes: { key: string; value: Record<string, unknown> }[]
}

interface OtlpRequest {
  resourceSpans: { scopeSpans: { spans: OtlpSpan[] }[] }[]
}

/** A collector: keeps what it receives, as it was sent. */
const received: { headers: IncomingHttpHeaders; body: OtlpRequest }[] = []
const collector = createServer(async (request, response) => {
  received.push({ headers: request.headers, body: (await json(request)) as OtlpRequest })
  response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
})
const spans = (): OtlpSpan[] =>
  received.flatMap(({ body }) =>
    body.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans: sent }) => sent)),
  )

const place = new Place()
let server: Glovebox
let upstream: TestUpstream
let older: SseUpstream
let newest: TestUpstream
let key: OwnKey
beforeAll(async () => {
  await new Promise<void>((listening) => collector.listen(0, '127.0.0.1', listening))
  upstream = await openStatefulUpstream(() => [{ name: 'search', inputSchema: { type: 'object' } }])
  const { port } = collector.address() as AddressInfo
  const endpoint = `http://127.0.0.1:${port}/v1/traces`
  const tracing = ['--trace-endpoint', endpoint, '--trace-headers', 'authorization=collector-planted-1']
  server = await place.start('--no-dev', '--outbound-allow', '127.0.0.1', '--log-level', 'trace', ...tracing)
  key = await newKey(place)
  const token = join(place.directory, 'upstream-token')
  writeFileSync(token, 'upstream-planted-2\n', { mode: 0o600 })
  older = await openSseUpstream()
  newest = await openStatelessUpstream(undefined, { modernOnly: true })
  const add = (name: string, url: string, ...more: string[]) =>
    runCommand(place, ['upstreams', 'add', name, url, '--bearer-file', token, '--outbound-allow', '127.0.0.1', ...more])
  expect(await add('acme/search', upstream.url)).toMatchObject({ code: 0 })
  expect(await add('acme/older', older.url, '--transport', 'sse')).toMatchObject({ code: 0 })
  expect(await add('acme/newest', newest.url)).toMatchObject({ code: 0 })
  const { command, args } = plainServer()
  const program = await runCommand(place, ['upstreams', 'add', 'acme/program', '--', command, ...args])
  expect(program).toMatchObject({ code: 0 })
}, 90_000)
afterAll(async () => {
  await place.remove()
  for (const one of [upstream, older, newest]) one.close()
  collector.close()
})

const post = async (path: string, body: object, headers: Record<string, string> = {}): Promise<string> => {
  const response = await fetch(server.url + path, {
    method: 'POST',
    headers: {
      ...{ 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
      ...{ ...key.headers, ...headers },
    },
    body: JSON.stringify(body),
  })
  const text = await response.text()
  expect([text, response.status]).toEqual([text, 200])
  return text
}

const toolCall = (name: string, given: object, meta?: object) => ({
  ...{ jsonrpc: '2.0', id: 1, method: 'tools/call' },
  params: { name, arguments: given, ...(meta && { _meta: meta }) },
})

const spansOf = async (traceId: string, count: number): Promise<OtlpSpan[]> => {
  const found = () => spans().filter((span) => span.traceId === traceId)
  await expect.poll(() => found().length, { timeout: 20_000 }).toBeGreaterThanOrEqual(count)
  return found()
}

const [traceOfHeader, traceOfMeta, traceOfUpstream] = ['a', 'b', 'c'].map((digit) => digit.repeat(32)) as [
  string,
  string,
  string,
]
const parent = '00f067aa0ba902b7'
const code = 'print("code-planted-3")'

describe('a collector of traces', () => {
  it('receives one connected trace of a request, the runner and the jail', async () => {
    await post(
      '/v1/sandbox/execute',
      { language: 'python', code, env_vars: { TOKEN: 'variable-planted-4' } },
      {
        traceparent: `00-${traceOfHeader}-${parent}-01`,
      },
    )
    const found = await spansOf(traceOfHeader, 6)
    const byId = new Map(found.map((span) => [span.spanId, span]))
    const root = found.find(({ parentSpanId }) => parentSpanId === parent)!
    expect(root).toMatchObject({ name: 'POST /v1/sandbox/execute', kind: 2 })
    const run = found.find(({ name }) => name === 'run python')!
    expect(run.parentSpanId).toBe(root.spanId)
    const parts = found.filter(({ parentSpanId }) => parentSpanId === run.spanId).map(({ name }) => name)
    expect(parts).toEqual(expect.arrayContaining(['runner slot', 'jail program', 'runner drain', 'store ending']))
    // Connected: each span but the first one has its parent in the same trace, which began before it.
    for (const span of found.filter((each) => each !== root)) {
      const above = byId.get(span.parentSpanId!)!
      expect(Number(BigInt(span.startTimeUnixNano) - BigInt(above.startTimeUnixNano))).toBeGreaterThan(-5e6)
      expect(BigInt(span.endTimeUnixNano) >= BigInt(span.startTimeUnixNano)).toBe(true)
    }
  })

  it('receives the trace that a message of MCP names in _meta', async () => {
    const meta = { traceparent: `00-${traceOfMeta}-${parent}-01` }
    await post('/mcp', toolCall('sandbox_execute', { language: 'bash', code: 'true' }, meta))
    const found = await spansOf(traceOfMeta, 3)
    expect(found.find(({ name }) => name === 'POST /mcp')).toMatchObject({ parentSpanId: parent })
    expect(found.map(({ name }) => name)).toContain('run bash')
  })

  it('receives the call of an upstream, which gets the same trace', async () => {
    const before = upstream.received.length
    await post('/acme/search/sse', toolCall('search', {}), { traceparent: `00-${traceOfUpstream}-${parent}-01` })
    const found = await spansOf(traceOfUpstream, 2)
    const call = found.find(({ name }) => name === 'upstream acme/search')!
    const request = found.find(({ parentSpanId }) => parentSpanId === parent)!
    expect([call.kind, call.parentSpanId]).toEqual([3, request.spanId])
    expect(upstream.received.slice(before).map(({ headers }) => headers.traceparent)).toContain(
      `00-${traceOfUpstream}-${call.spanId}-01`,
    )
  })

  it.each([
    ['the older transport', 'acme/older', '1', () => older],
    ['the newest version alone', 'acme/newest', '2', () => newest],
  ] as const)('receives the call of an upstream with %s', async (_, name, digit, of) => {
    const traceId = digit.repeat(32)
    await post(`/${name}/sse`, toolCall('echo', { text: 'x' }), { traceparent: `00-${traceId}-${parent}-01` })
    const found = await spansOf(traceId, 2)
    const call = found.find((span) => span.name === `upstream ${name}`)!
    expect(of().received.map(({ headers }) => headers.traceparent)).toContain(`00-${traceId}-${call.spanId}-01`)
  })

  it.each([
    ['its header', '3', (traceparent: string) => ({ headers: { traceparent, tracestate: 'vendor=1' } })],
    ['_meta', '4', (traceparent: string) => ({ meta: { traceparent, tracestate: 'vendor=1', other: true } })],
  ] as const)('receives the call of a program, which gets the trace of %s in _meta', async (_, digit, given) => {
    const traceId = digit.repeat(32)
    const { headers, meta }: { headers?: Record<string, string>; meta?: object } = given(`00-${traceId}-${parent}-01`)
    const answer = await post('/acme/program/sse', toolCall('meta', {}, meta), headers)
    const found = await spansOf(traceId, 2)
    const call = found.find((span) => span.name === 'upstream acme/program')!
    expect(found.find(({ spanId }) => spanId === call.parentSpanId)).toMatchObject({ parentSpanId: parent })
    const { result } = JSON.parse(
      answer
        .split('\n')
        .findLast((line) => line.startsWith('data: '))!
        .slice(6),
    )
    const traceparent = `00-${traceId}-${call.spanId}-01`
    expect(JSON.parse(result.content[0].text)).toEqual({ ...meta, traceparent, tracestate: 'vendor=1' })
  })

  it('receives nothing of a trace that its client does not sample', async () => {
    const unsampled = 'd'.repeat(32)
    await post(
      '/v1/sandbox/execute',
      { language: 'bash', code: 'true' },
      { traceparent: `00-${unsampled}-${parent}-00` },
    )
    await post('/v1/sandbox/execute', { language: 'bash', code: 'true' })
    await expect.poll(() => spans().filter(({ name }) => name === 'run bash').length, { timeout: 20_000 }).toBe(2)
    expect(spans().filter(({ traceId }) => traceId === unsampled)).toEqual([])
  })

  it('receives no secret', () => {
    expect(received[0]!.headers.authorization).toBe('collector-planted-1')
    const sent = JSON.stringify(received.map(({ body }) => body))
    for (const secret of [
      key.secret,
      'collector-planted-1',
      'upstream-planted-2',
      code,
      'code-planted-3',
      'variable-planted-4',
    ])
      expect(sent).not.toContain(secret)
    expect(JSON.stringify(server.log)).not.toMatch(/planted-/)
  })

  it('may be gone: requests are answered, and one line of the log says so', async () => {
    collector.closeAllConnections()
    await new Promise((closed) => collector.close(closed))
    expect(await post('/v1/sandbox/execute', { language: 'bash', code: 'echo still' })).toContain('still')
    await expect
      .poll(() => server.log.filter(({ msg }) => msg === 'traces could not be sent to the collector').length, {
        timeout: 30_000,
      })
      .toBe(1)
  })
})
