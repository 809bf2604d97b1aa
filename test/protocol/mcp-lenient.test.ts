import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { legacyVersions } from '../../src/mcp/era.ts'
import { type Front, openFront } from '../support/front.ts'
import { askModern } from '../support/modern.ts'
import { rawRequest, sendRaw, statusOf } from '../support/raw-http.ts'

let front: Front
beforeAll(async () => {
  front = await openFront()
})
afterAll(async () => {
  await front.close()
})

const rpc = (method: string, params: object = {}, id: unknown = 1) =>
  JSON.stringify({ jsonrpc: '2.0', id, method, params })
const execute = (code: string, meta: object = {}) =>
  rpc('tools/call', { name: 'sandbox_execute', arguments: { code, language: 'bash' }, _meta: meta })

/** Sends exactly these headers, which `fetch` cannot do. */
async function send(body: string, headers: Record<string, string>) {
  const all = { host: `127.0.0.1:${front.port}`, 'content-type': 'application/json', ...headers }
  const answer = await sendRaw(front.port, rawRequest('POST', '/mcp', all, body), 20_000)
  const type = /\r\ncontent-type: *([^;\r]+)/i.exec(answer)?.[1]
  return { status: statusOf(answer), type, text: answer.slice(answer.indexOf('\r\n\r\n') + 4) }
}

const json = 'application/json'
const events = 'text/event-stream'
const accepts: Record<string, string>[] = [{}, ...[json, events, '*/*', 'text/html', ''].map((accept) => ({ accept }))]

describe('a client with an incomplete or overly broad Accept header', () => {
  it('is answered, as plain JSON when there is nothing to stream and the client accepts it', async () => {
    for (const accept of accepts)
      for (const version of [{}, ...legacyVersions.map((known) => ({ 'mcp-protocol-version': known }))]) {
        const { status, type, text } = await send(rpc('tools/list'), { ...accept, ...version })
        expect([accept, version, status, type, text.includes('sandbox_execute')]).toEqual([
          ...[accept, version, 200, accept.accept === events ? events : json, true],
        ])
      }
  })

  it('is answered by 2026-07-28 as well', async () => {
    for (const accept of [json, events, '*/*', 'text/html', '']) {
      const { status, headers, body } = await askModern(front.url, 'tools/list', {}, { headers: { accept } })
      expect([accept, status, headers.get('content-type')?.split(';')[0], body.result?.resultType]).toEqual([
        ...[accept, 200, accept === events ? events : json, 'complete'],
      ])
    }
  })

  it('receives progress only when it accepts event streams', async () => {
    for (const accept of accepts) {
      const { status, type, text } = await send(execute('echo x', { progressToken: 1 }), accept)
      const wanted = accept.accept === events ? events : json
      expect([accept, status, type, text.includes('"stdout":"x\\n"')]).toEqual([accept, 200, wanted, true])
    }
  })

  it('can accept gzip only where it is available', async () => {
    for (const type of [json, `${json}; charset=utf-8`, 'APPLICATION/JSON;charset="UTF-8"'])
      expect([type, (await send(rpc('ping'), { 'content-type': type })).status]).toEqual([type, 200])
    for (const type of ['text/plain', `${json}; charset=latin1`, 'application/json-rpc', ''])
      expect([type, (await send(rpc('ping'), { 'content-type': type })).status]).toEqual([type, 415])
  })
})

describe('a client that sends null for what it does not have', () => {
  it('is answered as if it had sent nothing, in both eras', async () => {
    const message = (fields: object) => JSON.stringify({ jsonrpc: '2.0', id: 1, ...fields })
    const list = JSON.parse((await send(rpc('tools/list'), {})).text).result
    for (const params of [null, { cursor: null }, { _meta: null }, { cursor: '', _meta: {} }]) {
      const { text } = await send(message({ method: 'tools/list', params }), {})
      expect([params, JSON.parse(text).result]).toEqual([params, list])
    }
    const args = { code: 'echo x', language: 'SH', timeout: null, thread_id: '', env_vars: null, metadata: null }
    const call = { name: 'sandbox_execute', arguments: args, _meta: null }
    expect((await send(message({ method: 'tools/call', params: call }), {})).text).toContain('x\\n')
    const modern = await askModern(front.url, 'tools/call', { name: 'sandbox_execute', arguments: args })
    expect(modern.body.result).toMatchObject({ isError: false })
    expect((await askModern(front.url, 'tools/list', { cursor: null })).body.result?.tools).toEqual(list.tools)
    const rest = await front.post('/v1/sandbox/execute', { ...args, sessionId: 'x' })
    expect([rest.status, ((await rest.json()) as { stdout: string }).stdout]).toEqual([200, 'x\n'])
    expect(rest.headers.get('x-glovebox-warning')).toMatch(/^Ignored unknown arguments: "sessionId"\. Known are code/)
  })

  it('reads which unknown arguments were ignored', async () => {
    const args = { code: 'echo x', language: 'bash', sessionId: 'x', toolCallId: 'z' }
    const { text } = await send(rpc('tools/call', { name: 'sandbox_execute', arguments: args }), {})
    const { content, isError } = JSON.parse(text).result
    expect(isError).toBe(false)
    expect(content.at(-1).text).toMatch(/^Ignored unknown arguments: "sessionId", "toolCallId"\. Known are code/)
  })
})

describe('an integer beyond 2^53', () => {
  it.each(['9007199254740993', '-9007199254740993', '18446744073709551615', '1'.repeat(40)])(
    'comes back exactly as an id and in metadata: %s',
    async (digits) => {
      const { text } = await send(`{"jsonrpc":"2.0","id":${digits},"method":"ping"}`, {})
      expect(text).toBe(`{"jsonrpc":"2.0","id":${digits},"result":{}}`)
      const refused = await send(`{"jsonrpc":"2.0","id":${digits},"method":"nothing"}`, {})
      expect(refused.text).toContain(`"id":${digits},`)
      const body = `{"code":"true","language":"bash","metadata":{"order":[${digits}],"small":1.5}}`
      const run = (await (await front.post('/v1/sandbox/execute', body)).json()) as { trace_id: string }
      const execution = await fetch(`${front.url}/v1/executions/${run.trace_id}`)
      expect(await execution.text()).toContain(`"metadata":{"order":[${digits}],"small":1.5}`)
    },
  )

  it('is a number wherever a number is expected', async () => {
    const body = '{"code":"true","language":"bash","timeout":9007199254740993}'
    const response = await front.post('/v1/sandbox/execute', body)
    expect(await response.text()).toContain('timeout must be at most 3600')
  })

  it('is not an object', async () => {
    for (const body of ['9007199254740993', '{"jsonrpc":"2.0","id":1,"method":"ping","params":9007199254740993}'])
      expect((await send(body, {})).status).toBe(400)
    const { text } = await send('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":9007199254740993}}', {})
    expect(text).toContain('name must be a string')
  })
})

describe('the body and the address of a request', () => {
  it('can begin with a byte order mark', async () => {
    expect((await send(`\ufeff${rpc('ping')}`, {})).status).toBe(200)
  })

  it('can end with a slash', async () => {
    for (const path of ['/mcp/', '/mcp/?toolsets=execute'])
      expect([path, (await front.post(path, JSON.parse(rpc('ping')))).status]).toEqual([path, 200])
  })

  it('can name loopback on another port, as a tunnel does', async () => {
    for (const host of ['localhost:8080', 'localhost.', '127.0.0.1'])
      expect([host, (await send(rpc('ping'), { host })).status]).toEqual([host, 200])
  })
})

describe('characters that some clients read as line breaks', () => {
  const breaks = 'a\u2028b\u2029c\u0085d'
  const code = "printf 'a\\xe2\\x80\\xa8b\\xe2\\x80\\xa9c\\xc2\\x85d'"

  it('are escaped in every line of a stream', async () => {
    const streamed = await send(execute(code, { progressToken: 1 }), { accept: events })
    const lines = await front.post(
      '/v1/sandbox/execute',
      { code, language: 'bash' },
      { accept: 'application/x-ndjson' },
    )
    for (const text of [streamed.text, await lines.text()]) {
      expect(text).not.toMatch(/[\u2028\u2029\u0085]/)
      const parsed = text.split('\n').flatMap((line) => /\{.*\}/.exec(line) ?? [])
      expect(parsed.some((json) => JSON.stringify(JSON.parse(json)).includes(breaks))).toBe(true)
    }
  })
})

describe('a client that disconnects', () => {
  it('cancels nothing in the versions before 2026-07-28', async () => {
    const versions = [undefined, ...legacyVersions]
    const marks = versions.map((_, n) => n + 10)
    const before = front.runner.specs.size
    const leaving = new AbortController()
    const left = versions.map((version, n) =>
      fetch(`${front.url}/mcp`, {
        method: 'POST',
        headers: { 'content-type': json, accept: json, ...(version && { 'mcp-protocol-version': version }) },
        body: execute(`sleep 2; exit ${marks[n]}`),
        signal: leaving.signal,
      }).then(
        () => 'answered',
        () => 'left',
      ),
    )
    await vi.waitFor(() => expect(front.runner.specs.size).toBe(before + versions.length), 20_000)
    const runIds = [...front.runner.specs.keys()].slice(-versions.length)
    leaving.abort()
    expect(await Promise.all(left)).toEqual(versions.map(() => 'left'))
    await vi.waitFor(async () => {
      const rows = await Promise.all(runIds.map((id) => front.store.runs.get(id)))
      const codes = rows.map((row) => (row?.ending?.kind === 'exited' ? row.ending.code : row?.ending))
      expect(codes.sort()).toEqual(marks)
    }, 30_000)
  })
})

describe('a lone surrogate', () => {
  it('in an id, a name or a method is answered and does no harm', async () => {
    const half = '\ud800'
    const ping = JSON.parse((await send(rpc('ping', {}, half), {})).text)
    expect(ping).toEqual({ jsonrpc: '2.0', id: half, result: {} })
    expect((await send(rpc(half), {})).text).toContain('-32601')
    expect((await send(rpc('tools/call', { name: half }), {})).text).toContain('Unknown tool')
    expect((await send(rpc('resources/read', { uri: half }), {})).text).toContain('-32602')
  })

  it('in source code or input is rejected by its field, and nothing runs', async () => {
    const before = front.runner.specs.size
    const given: [object, string][] = [
      [{ code: 'echo \ud800' }, 'code'],
      [{ code: 'echo', stdin: '\udfff' }, 'stdin'],
      [{ code: 'echo', env_vars: { A: '\ud800' } }, 'env_vars'],
    ]
    for (const [args, field] of given) {
      const { text } = await send(rpc('tools/call', { name: 'sandbox_execute', arguments: args }), {})
      expect([field, /lone surrogate/.test(text), text.includes(field)]).toEqual([field, true, true])
    }
    expect(front.runner.specs.size).toBe(before)
  })
})

describe('a request body', () => {
  it('can be nested 64 levels deep, and no deeper', async () => {
    // Around the innermost: the message, its params and this many arrays.
    const nested = (depth: number) =>
      `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":${'['.repeat(depth - 2)}${']'.repeat(depth - 2)}}}`
    expect((await send(nested(64), {})).status).toBe(200)
    const refused = await send(nested(65), {})
    expect([refused.status, refused.text]).toEqual([400, expect.stringContaining('nested deeper than 64 levels')])
  })
})
