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
  it('is answered, as plain JSON when there is nothing to stream', async () => {
    for (const accept of accepts)
      for (const version of [{}, ...legacyVersions.map((known) => ({ 'mcp-protocol-version': known }))]) {
        const { status, type, text } = await send(rpc('tools/list'), { ...accept, ...version })
        expect([accept, version, status, type, text.includes('sandbox_execute')]).toEqual([
          ...[accept, version, 200, json, true],
        ])
      }
  })

  it('is answered by 2026-07-28 as well', async () => {
    for (const accept of [json, events, '*/*', 'text/html', '']) {
      const { status, headers, body } = await askModern(front.url, 'tools/list', {}, { headers: { accept } })
      expect([accept, status, headers.get('content-type')?.split(';')[0], body.result?.resultType]).toEqual([
        ...[accept, 200, json, 'complete'],
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
