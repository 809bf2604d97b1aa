import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Refusal } from '../../src/base/errors.ts'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createToken } from '../../src/core/admin/tokens.ts'
import { errorLine } from '../../src/http/answer.ts'
import { operations } from '../../src/http/operations.ts'
import { type Front, openFront, testProfile, threadsProfile } from '../support/front.ts'
import { RawConnection, rawRequest } from '../support/raw-http.ts'

let front: Front
let key: Record<string, string>
let admin: Record<string, string>

beforeAll(async () => {
  front = await openFront(threadsProfile, { dev: false })
  const { id } = await createOrg(front.core.adminContext, operator, 'semantics')
  key = { 'x-api-key': (await createKey(front.core.adminContext, operator, id, {}, [])).secret }
  const { secret } = await createToken(front.core.adminContext, operator, { role: 'owner', name: 'all' })
  admin = { authorization: `Bearer ${secret}` }
})
afterAll(() => front.close())

const post = (path: string, body: object, headers: Record<string, string> = {}) =>
  front.post(path, body, { ...key, ...headers })
const ofAdmin = () => admin
const credentials = {
  ...{ key: () => key, 'key or admin token': () => key, open: () => ({}) },
  ...{ 'admin token': ofAdmin, operator: ofAdmin, runtime: ofAdmin },
}

describe('a request whose client disconnects before its body has arrived', () => {
  it('is no error of the server', async () => {
    const host = `127.0.0.1:${front.port}`
    const json = { host, ...key, 'content-type': 'application/json', 'content-length': '100', connection: 'keep-alive' }
    for (const path of ['/mcp', '/v1/sandbox/execute', '/v1/files/list']) {
      const connection = new RawConnection(front.port)
      await connection.write(`${rawRequest('POST', path, json)}{"half":`)
      await expect.poll(() => front.core.openRequests.usage.requests).toBe(1)
      connection.destroy()
      await expect.poll(() => front.core.openRequests.usage.requests).toBe(0)
    }
    expect((await fetch(`${front.url}/v1/executions`, { headers: key })).status).toBe(200)
    expect(front.lines.filter((line) => /"level":"(?:error|warn)"/.test(line))).toEqual([])
  })
})

describe('HEAD', () => {
  const gets = operations.filter(({ method, path }) => method === 'GET' && path !== '/v1/blobs/{token}')

  it.each(gets.map((operation) => [operation.path, operation] as const))(
    'is answered like GET, without the body: %s',
    async (path, { access }) => {
      const url = `${front.url}${path.replaceAll(/\{\w+\}/g, 'none')}`
      const headers = { ...credentials[access](), accept: 'application/json' }
      const [got, head] = [await fetch(url, { headers }), await fetch(url, { method: 'HEAD', headers })]
      const seen = ({ status, headers: sent }: Response) => [status, sent.get('content-type')]
      expect(seen(head)).toEqual(seen(got))
      expect(await head.text()).toBe('')
      await got.body?.cancel()
    },
  )

  it('ends at once where GET would stream', async () => {
    const response = await post(
      '/v1/sandbox/execute',
      { language: 'bash', code: 'sleep 60' },
      { accept: 'application/x-ndjson' },
    )
    const id = response.headers.get('x-trace-id') ?? ''
    const headers = { ...key, accept: 'application/x-ndjson' }
    const head = await fetch(`${front.url}/v1/executions/${id}/output`, { method: 'HEAD', headers })
    expect([head.status, head.headers.get('content-type'), await head.text()]).toEqual([
      200,
      'application/x-ndjson',
      '',
    ])
    const events = { ...key, accept: 'text/event-stream' }
    expect((await fetch(`${front.url}/mcp`, { method: 'HEAD', headers: events })).status).toBe(200)
    await post(`/v1/executions/${id}/cancel`, {})
    await response.text()
  })
})

describe('a media type with the weight 0', () => {
  it('is one that the client does not accept', async () => {
    const lines = await post('/v1/sandbox/execute', { code: 'print(1)' }, { accept: 'application/x-ndjson;q=0' })
    expect(lines.headers.get('content-type')).toBe('application/json; charset=utf-8')
    for (const accept of ['text/event-stream;q=0', 'text/event-stream; q=0.000, */*']) {
      const response = await fetch(`${front.url}/mcp`, { headers: { ...key, accept } })
      expect([accept, response.status]).toEqual([accept, 406])
    }
  })
})

describe('PATCH without a change', () => {
  const patches = operations.filter(({ method }) => method === 'PATCH')

  it.each(patches.map((operation) => [operation.path, operation] as const))('is no error: %s', (_, { body }) => {
    expect((body as { required?: string[] }).required ?? []).toEqual([])
  })

  it('returns an organization as it is', async () => {
    const { id } = await createOrg(front.core.adminContext, operator, 'unchanged')
    const url = `${front.url}/admin/v1/orgs/${id}`
    const before = await (await fetch(url, { headers: admin })).json()
    const headers = { ...admin, 'content-type': 'application/json' }
    const response = await fetch(url, { method: 'PATCH', headers, body: '{}' })
    expect([response.status, await response.json()]).toEqual([200, before])
  })
})

describe('a query parameter that an operation does not have', () => {
  /** MCP clients add parameters of their own; the API of microsandbox accepts what its clients send. */
  const checked = operations.filter(
    ({ access, path, group }) =>
      access !== 'open' && path.includes('/v1/') && !path.startsWith('/api/v1/') && group.name !== 'MCP',
  )

  it.each(checked.map((operation) => [`${operation.method} ${operation.path}`, operation] as const))(
    'is refused: %s',
    async (_, { method, path, access }) => {
      const url = `${front.url}${path.replaceAll(/\{\w+\}/g, 'none')}?unheard_of=1`
      const headers = { ...credentials[access](), 'content-type': 'application/json' }
      const response = await fetch(url, { method, headers, ...(method !== 'GET' && { body: '{}' }) })
      expect([response.status, await response.json()]).toEqual([
        400,
        expect.objectContaining({ message: expect.stringContaining('unheard_of') }),
      ])
    },
  )
})

describe('a cursor that no list has returned', () => {
  it('is refused', async () => {
    const text = Buffer.from('[ "a" ]').toString('base64url')
    for (const cursor of ['x', 'e30', text, `${Buffer.from('["a"]').toString('base64url')}==`]) {
      const response = await fetch(`${front.url}/v1/threads?cursor=${cursor}`, { headers: key })
      expect([cursor, response.status]).toEqual([cursor, 400])
    }
    await post('/v1/sandbox/execute', { language: 'bash', code: 'true', thread_id: 'cursors' })
    for (const cursor of ['-1', 'x', '9223372036854775808', '9999999999999999999']) {
      const response = await post('/v1/files/list', { source: 'thread', id: 'cursors', cursor })
      expect([cursor, response.status]).toEqual([cursor, 400])
    }
  })
})

describe('a run that is fetched', () => {
  const get = async (id: string) =>
    (await (await fetch(`${front.url}/v1/executions/${id}`, { headers: key })).json()) as Record<string, unknown>

  it('has every field that its first response had, with the same value', async () => {
    const body = { language: 'bash', code: 'echo out; sleep 0.05; exit 3', idempotency_key: 'same' }
    const first = (await (await post('/v1/sandbox/execute', body)).json()) as Record<string, unknown>
    expect(await get(String(first.trace_id))).toMatchObject(first)
    const again = await post('/v1/sandbox/execute', body, { accept: 'application/x-ndjson' })
    const last: unknown = JSON.parse((await again.text()).trim().split('\n').at(-1) ?? '')
    expect(last).toEqual({ type: 'result', ...first })
  })

  it('has every field of the last line of its stream, with the same value', async () => {
    const body = { language: 'bash', code: 'echo out' }
    const streamed = await post('/v1/sandbox/execute', body, { accept: 'application/x-ndjson' })
    const { type, seq, ...execution } = JSON.parse((await streamed.text()).trim().split('\n').at(-1) ?? '')
    expect([type, seq]).toEqual(['result', expect.any(Number)])
    expect(await get(String(execution.trace_id))).toMatchObject(execution)
  })
})

describe('files', () => {
  const inThread = (id: string, code: string) => post('/v1/sandbox/execute', { language: 'bash', code, thread_id: id })
  const linkTo = async (path: string, headers: Record<string, string> = {}) => {
    const response = await post('/v1/files/download', { source: 'thread', id: 'dated', path })
    const { url } = (await response.json()) as { url: string }
    return fetch(url, { headers })
  }

  it('are not sent again to a client that has them, by a list of ETags or by their date', async () => {
    await inThread('dated', "echo old >f; touch -d '2020-01-01T00:00:00.5Z' f; echo new >g")
    const { headers } = await linkTo('f')
    const etag = headers.get('etag') ?? ''
    const modified = headers.get('last-modified') ?? ''
    expect(modified).toBe('Wed, 01 Jan 2020 00:00:00 GMT')
    const statuses = async (path: string, all: Record<string, string>[]) =>
      Promise.all(all.map(async (sent) => (await linkTo(path, sent)).status))
    const later = 'Thu, 02 Jan 2020 00:00:00 GMT'
    const earlier = 'Tue, 31 Dec 2019 23:59:59 GMT'
    const fresh = [{ 'if-none-match': `"x", ${etag}, "y"` }, { 'if-none-match': '*' }]
    const dated = [{ 'if-modified-since': modified }, { 'if-modified-since': later }]
    expect(await statuses('f', [...fresh, ...dated])).toEqual([304, 304, 304, 304])
    const other = { 'if-none-match': '"x"', 'if-modified-since': later }
    expect(await statuses('f', [other, { 'if-modified-since': earlier }, { 'if-modified-since': 'x' }])).toEqual([
      200, 200, 200,
    ])
    // Written within the last two seconds: a program could write it again within the same one.
    const since = new Date(Date.now() + 5_000).toUTCString()
    const recent = await linkTo('g', { 'if-modified-since': since })
    expect([recent.status, recent.headers.get('last-modified')]).toEqual([200, null])
  })

  it('are checked when the link is created', async () => {
    await inThread('links', 'mkdir d; echo x >f; ln -s f link')
    const upload = async (id: string, path: string) =>
      (await post('/v1/files/upload', { source: 'thread', id, path, size: 1 })).status
    for (const path of ['', '../x', '/etc/passwd', 'd', 'link', 'a//b', 'f/x']) {
      expect([path, await upload('links', path)]).toEqual([path, 400])
    }
    for (const path of ['', '../x', '/x', 'a/../../x'])
      expect([path, await upload('unmade', path)]).toEqual([path, 400])
    for (const path of ['f', 'new', 'd/e/new']) expect([path, await upload('links', path)]).toEqual([path, 200])
    expect(await upload('unmade', 'a/b')).toBe(200)
  })

  it('are reported as partly deleted when a later one fails', async () => {
    await inThread('deleting', 'mkdir full; echo x >full/f; echo x >a; echo x >b')
    const remove = async (paths: string[]) => {
      const response = await post('/v1/files/delete', { source: 'thread', id: 'deleting', paths })
      return [response.status, ((await response.json()) as { message?: string }).message]
    }
    expect(await remove(['a', 'full', 'b'])).toEqual([
      409,
      '1 files and directories were deleted, then full failed: The directory full is not empty.',
    ])
    expect(await remove(['missing', 'b'])).toEqual([404, 'missing does not exist.'])
    expect(await remove(['b'])).toEqual([200, undefined])
  })
})

describe('a profile of the configuration that names organizations', () => {
  it('does not exist for others', async () => {
    const limited = await openFront({ ...testProfile, orgs: ['org_other'] }, { dev: false })
    const { adminContext } = limited.core
    const { id } = await createOrg(adminContext, operator, 'unnamed')
    for (const settings of [{}, { profile: 'default' }]) {
      await expect(createKey(adminContext, operator, id, settings, [])).rejects.toMatchObject({
        code: 'invalid_argument',
        message: expect.stringContaining('"default" does not exist'),
      })
    }
    expect(await adminContext.profiles.get(id, 'default')).toBeUndefined()
    expect(await adminContext.profiles.get('org_other', 'default')).toMatchObject({ name: 'default' })
    await limited.close()
  })
})

describe('a page of an allowed origin', () => {
  const origin = 'https://app.example'
  let open: Front
  beforeAll(async () => {
    open = await openFront(testProfile, { dev: false, allowedOrigins: [origin], connectionsMax: 16 })
  })
  afterAll(() => open.close())

  it('may use every method and every header, of both versions of MCP', async () => {
    const wanted = 'authorization,content-type,mcp-session-id,mcp-protocol-version,mcp-method,mcp-name,mcp-param-region'
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']) {
      const headers = { origin, 'access-control-request-method': method, 'access-control-request-headers': wanted }
      const { headers: allowed, status } = await fetch(`${open.url}/mcp`, { method: 'OPTIONS', headers })
      expect([method, status, allowed.get('access-control-allow-origin')]).toEqual([method, 204, origin])
      expect(allowed.get('access-control-allow-methods')).toContain(method)
      expect(allowed.get('access-control-allow-headers')).toBe(wanted)
    }
  })

  it('can read every error, and the headers that say what to do', async () => {
    const requests: [number, string, RequestInit][] = [
      [401, '/v1/executions', {}],
      [404, '/nothing', {}],
      [400, '/%zz', {}],
      [415, '/mcp', { method: 'POST', body: 'x', headers: { 'content-type': 'text/plain' } }],
    ]
    for (const [status, path, init] of requests) {
      const response = await fetch(`${open.url}${path}`, { ...init, headers: { ...init.headers, origin } })
      const exposed = response.headers.get('access-control-expose-headers') ?? ''
      expect([path, response.status, response.headers.get('access-control-allow-origin')]).toEqual([
        path,
        status,
        origin,
      ])
      for (const name of ['mcp-session-id', 'retry-after', 'www-authenticate', 'location'])
        expect(exposed).toContain(name)
    }
    const other = await fetch(`${open.url}/nothing`, { headers: { origin: 'https://other.example' } })
    expect([other.status, other.headers.get('access-control-allow-origin')]).toEqual([403, null])
  })

  it('shares nothing with pages of origins that only look alike, with cookies, or with caches', async () => {
    const alike = [
      ...['null', '*', 'https://app.example.evil.example', 'https://app.example:444', 'http://app.example'],
      ...['https://APP.example', 'https://app.example/', 'https://xapp.example', `${origin}, ${origin}`],
    ]
    for (const given of alike) {
      for (const method of ['GET', 'OPTIONS']) {
        const headers = { origin: given, 'access-control-request-method': 'POST' }
        const answer = await fetch(`${open.url}/healthz`, { method, headers })
        const allowed = [...answer.headers.keys()].filter((name) => name.startsWith('access-control-allow'))
        expect([given, method, answer.status, allowed]).toEqual([given, method, 403, []])
      }
    }
    for (const headers of [{ origin }, {}] as Record<string, string>[]) {
      const { headers: sent } = await fetch(`${open.url}/openapi.json`, { headers })
      expect([sent.get('vary'), sent.get('access-control-allow-credentials')]).toEqual(['Origin', null])
    }
  })
})

describe('an error', () => {
  it('has the code of its row in docs/errors.md, and says whether the same request can succeed later', async () => {
    const errors = async (response: Response) => [response.status, await response.json()]
    const unknown = await fetch(`${front.url}/v1/executions/trc_none`, { headers: key })
    expect(await errors(unknown)).toEqual([
      404,
      {
        error: 'not_found',
        code: 'run_unknown',
        message: expect.any(String),
        hint: expect.any(String),
        retry: 'never',
      },
    ])
    front.runner.maxRuns = 0
    const full = await post('/v1/sandbox/execute', { code: '1' })
    front.runner.maxRuns = 32
    expect(await errors(full)).toMatchObject([503, { error: 'unavailable', code: 'queue_full', retry: 'later' }])
  })

  it('keeps its line together in a stream, whatever a client splits lines at', async () => {
    const refusal = new Refusal('path_not_found', { path: 'a\u2028b\u2029c\u0085d' })
    const line = errorLine(refusal)
    expect(line.split(/[\r\n\u2028\u2029\u0085]/)).toHaveLength(2)
    expect(JSON.parse(line)).toMatchObject({ type: 'error', message: refusal.message })
  })
})
