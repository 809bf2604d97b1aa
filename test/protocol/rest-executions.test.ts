import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { setHistorySettings } from '../../src/core/admin/history.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { forgetRuns } from '../../src/core/jobs/retention-job.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

let front: Front
let one: Record<string, string>
let other: Record<string, string>
let orgId: string

beforeAll(async () => {
  front = await openFront(threadsProfile, { dev: false, trustedProxies: ['127.0.0.1'] })
  orgId = (await createOrg(front.core.adminContext, operator, 'One')).id
  one = await keyOf(orgId)
  other = await keyOf((await createOrg(front.core.adminContext, operator, 'Other')).id)
})
afterAll(() => front.close())

async function keyOf(org: string): Promise<Record<string, string>> {
  const { secret } = await createKey(front.core.adminContext, operator, org, { name: 'key', profile: 'default' }, [])
  return { authorization: `Bearer ${secret}` }
}

interface Body {
  trace_id: string
  data: { trace_id: string; [field: string]: unknown }[]
  next_cursor: string | null
  error: string
  message: string
  [field: string]: unknown
}

const lines = { accept: 'application/x-ndjson' }
const bash = (code: string, more: object = {}) => ({ code, language: 'bash', ...more })

async function get(path: string, headers = one): Promise<{ status: number; body: Body }> {
  const response = await fetch(`${front.url}${path}`, { headers })
  return { status: response.status, body: (await response.json()) as Body }
}

async function execute(body: object, headers = one): Promise<Body> {
  const response = await front.post('/v1/sandbox/execute', body, headers)
  expect(response.status).toBe(200)
  return (await response.json()) as Body
}

async function begin(body: object): Promise<{ id: string; rest: Promise<string> }> {
  const response = await front.post('/v1/sandbox/execute', body, { ...one, ...lines })
  return { id: response.headers.get('x-trace-id') ?? '', rest: response.text() }
}

interface Line {
  type: string
  seq: number
  data?: string
  [field: string]: unknown
}

async function output(id: string, after?: number): Promise<Line[]> {
  const query = after === undefined ? '' : `?after=${after}`
  const response = await fetch(`${front.url}/v1/executions/${id}/output${query}`, { headers: { ...one, ...lines } })
  expect(response.status).toBe(200)
  const text = await response.text()
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line)
}

const printed = (told: Line[]) => told.filter(({ data }) => data !== undefined).map(({ type, data }) => [type, data])

describe('an execution', () => {
  it('is returned later as it was returned at first', async () => {
    const now = await execute(bash('echo out; echo err >&2; exit 3', { thread_id: 't1', metadata: { case: 7 } }))
    const { status, body } = await get(`/v1/executions/${now.trace_id}`)
    expect(status).toBe(200)
    const { completed_at: _, ...same } = now
    expect(body).toMatchObject(same)
    expect(body).toMatchObject({
      status: 'failed',
      exit_code: 3,
      stdout: 'out\n',
      stderr: 'err\n',
      thread_id: 't1',
      metadata: { case: 7 },
      delivery_mode: 'inline',
      output_kept: true,
      code: null,
      delivery: null,
    })
  })

  it('has no ending while it runs', async () => {
    const { id, rest } = await begin(bash('echo x; sleep 30'))
    const nothing = { exit_code: null, stdout: null, stderr: null, completed_at: null, error: null, duration_ms: null }
    expect((await get(`/v1/executions/${id}`)).body).toMatchObject({
      trace_id: id,
      status: 'running',
      delivery_mode: 'streaming',
      ...nothing,
    })
    await front.post(`/v1/executions/${id}/cancel`, {}, one)
    await rest
    expect((await get(`/v1/executions/${id}`)).body).toMatchObject({ status: 'cancelled', stdout: 'x\n' })
  })

  it('of another organization does not exist, for any operation', async () => {
    const { trace_id } = await execute(bash('true'))
    for (const id of [trace_id, 'trc_none', '__proto__']) {
      const paths = [`/v1/executions/${id}`, `/v1/executions/${id}/output`]
      for (const path of paths) {
        const { status, body } = await get(path, other)
        expect([path, status, body.error]).toEqual([path, 404, 'not_found'])
        const followed = await fetch(`${front.url}${path}`, { headers: { ...other, ...lines } })
        expect([path, followed.status]).toEqual([path, 404])
        await followed.arrayBuffer()
      }
      const cancelled = await front.post(`/v1/executions/${id}/cancel`, {}, other)
      expect(cancelled.status).toBe(404)
    }
    expect((await get('/v1/executions', other)).body).toEqual({ data: [], next_cursor: null })
  })
})

describe('the output of an execution', () => {
  it('is followed by a second reader to the end', async () => {
    const { id, rest } = await begin(bash('echo one; sleep 0.3; echo two >&2; sleep 0.3; echo three'))
    const told = await output(id)
    expect(told[0]).toMatchObject({ type: 'status', seq: 0, trace_id: id })
    expect(printed(told)).toEqual([
      ['stdout', 'one\n'],
      ['stderr', 'two\n'],
      ['stdout', 'three\n'],
    ])
    expect(told.at(-1)).toMatchObject({ type: 'result', status: 'success', stdout: 'one\nthree\n', trace_id: id })
    await rest
  })

  it('has the same sequence numbers after its end as before it', async () => {
    const { id, rest } = await begin(bash('echo a; sleep 0.2; echo b >&2; sleep 0.2; printf c; sleep 0.2; printf €'))
    const live = (await rest)
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Line)
    const later = await output(id)
    expect(later.at(-1)?.seq).toBe(live.at(-1)?.seq)
    expect(printed(later)).toEqual([
      ['stdout', 'a\n'],
      ['stderr', 'b\n'],
      ['stdout', 'c€'],
    ])
    // From any sequence number on: nothing twice, nothing omitted.
    const end = later.at(-1)!.seq
    for (let after = 0; after <= end + 1; after++) {
      const text = printed(await output(id, after)).map(([, data]) => data)
      expect([after, 'a\nb\nc€'.endsWith(text.join(''))]).toEqual([after, true])
    }
    for (const { seq, data } of live.filter(({ data }) => data !== undefined)) {
      const rest = printed(await output(id, seq)).map(([, text]) => text)
      expect([data, rest.join('')]).toEqual([data, 'a\nb\nc€'.slice('a\nb\nc€'.indexOf(data!) + data!.length)])
    }
    expect((await output(id, 10 ** 14)).map(({ type }) => type)).toEqual(['status', 'result'])
  })

  it('marks omitted output as a gap', async () => {
    const { trace_id } = await execute(bash('head -c 300000 /dev/zero | tr "\\0" x'))
    const told = await output(trace_id)
    const gap = told.filter(({ type }) => type === 'gap').reduce((sum, { bytes }) => sum + Number(bytes), 0)
    const shown = printed(told).reduce((sum, [, data]) => sum + data!.length, 0)
    expect(gap).toBeGreaterThan(0)
    expect(gap + shown).toBe(300_000)
  })

  it('is one object with the output so far unless NDJSON is requested', async () => {
    const { id, rest } = await begin(bash('echo soon; sleep 30'))
    await vi.waitFor(async () => {
      const { body } = await get(`/v1/executions/${id}/output`)
      expect(body).toMatchObject({ status: 'running', ending: null, stdout: 'soon\n', output_kept: true })
    }, 10_000)
    await front.post(`/v1/executions/${id}/cancel`, {}, one)
    await rest
    const { body } = await get(`/v1/executions/${id}/output`)
    expect(body).toMatchObject({ status: 'cancelled', ending: { kind: 'cancelled' }, stdout: 'soon\n' })
  })

  it('does not end its run when a reader disconnects', async () => {
    const { id, rest } = await begin(bash('echo x; sleep 1; echo y'))
    const leaving = new AbortController()
    const reading = await fetch(`${front.url}/v1/executions/${id}/output`, {
      headers: { ...one, ...lines },
      signal: leaving.signal,
    })
    leaving.abort()
    await reading.text().catch(() => 'left')
    expect(await rest).toContain('"exit_code":0')
  })
})

describe('the list of executions', () => {
  it('is ordered newest first, with pages of any size', async () => {
    for (let count = 0; count < 5; count++) await execute(bash('true', { metadata: { list: 'parts' } }))
    const whole = (await get('/v1/executions?metadata.list=parts')).body.data.map(({ trace_id }) => trace_id)
    expect(whole).toHaveLength(5)
    const found: string[] = []
    let cursor: string | null = ''
    while (cursor !== null) {
      const more: string = cursor === '' ? '' : `&cursor=${cursor}`
      const { body } = await get(`/v1/executions?metadata.list=parts&limit=2${more}`)
      found.push(...body.data.map(({ trace_id }) => trace_id))
      cursor = body.next_cursor
    }
    expect(found).toEqual(whole)
    const times = (await get('/v1/executions')).body.data.map(({ created_at }) => String(created_at))
    expect(times).toEqual(times.toSorted().toReversed())
  })

  it('filters by thread, status, language, time and metadata, in any combination', async () => {
    const before = new Date().toISOString()
    await sleep(5)
    const wanted = await execute(bash('exit 4', { thread_id: 'find', metadata: { a: 'x', n: 1, deep: { no: 1 } } }))
    await execute(bash('true', { thread_id: 'find', metadata: { a: 'x', n: 2 } }))
    await sleep(5)
    const after = new Date().toISOString()
    const find = async (query: string) =>
      (await get(`/v1/executions?${query}`)).body.data.map(({ trace_id }) => trace_id)
    const all = `thread_id=find&status=failed&language=bash&created_after=${before}&created_before=${after}`
    expect(await find(`${all}&metadata.a=x&metadata.n=1`)).toEqual([wanted.trace_id])
    expect(await find('thread_id=find')).toHaveLength(2)
    expect(await find('thread_id=find&metadata.n=3')).toEqual([])
    expect(await find('thread_id=find&metadata.deep=1')).toEqual([])
    expect(await find(`thread_id=find&created_before=${before}`)).toEqual([])
    expect(await find('thread_id=find&language=node')).toEqual([])
    expect(await find('thread_id=find&status=running')).toEqual([])
  })

  it('rejects invalid parameters by name', async () => {
    const cases: [string, string][] = [
      ['/v1/executions?limit=0', 'limit'],
      ['/v1/executions?limit=201', 'limit'],
      ['/v1/executions?limit=x', 'limit'],
      ['/v1/executions?cursor=x', 'cursor'],
      ['/v1/executions?status=done', 'status must be one of running'],
      ['/v1/executions?language=cobol', 'language must be one of'],
      ['/v1/executions?created_after=yesterday', 'created_after'],
      ['/v1/executions?status=failed&status=success', 'status must be given once'],
      ['/v1/executions?colour=red', 'colour is not a parameter'],
      ['/v1/executions?metadata.=1', 'metadata. is not a parameter'],
      [`/v1/executions?${Array.from({ length: 9 }, (_, n) => `metadata.k${n}=1`).join('&')}`, 'the maximum is 8'],
      ['/v1/executions/trc_x?colour=red', 'colour is not a parameter'],
      ['/v1/executions/trc_x/output?after=1', 'application/x-ndjson'],
    ]
    for (const [path, message] of cases) {
      const { status, body } = await get(path)
      expect([path, status, body.error]).toEqual([path, 400, 'validation_error'])
      expect(body.message).toContain(message)
    }
    for (const query of ['after=-1', 'after=1e3', 'encoding=utf-7']) {
      const { trace_id } = await execute(bash('true'))
      const response = await fetch(`${front.url}/v1/executions/${trace_id}/output?${query}`, {
        headers: { ...one, ...lines },
      })
      expect([query, response.status]).toEqual([query, 400])
      await response.arrayBuffer()
    }
    expect((await get('/v1/executions', {})).status).toBe(401)
    expect((await front.post('/v1/executions', {}, one)).status).toBe(405)
  })
})

describe('run history', () => {
  it('keeps code and output with the run if the organization wants that, and only from then on', async () => {
    const old = await execute(bash('echo old'))
    await setHistorySettings(front.core.adminContext, operator, orgId, { keep_code: true, keep_output: true })
    await sleep(1_200)
    const fresh = await execute(bash('echo fresh # ü'))
    await setHistorySettings(front.core.adminContext, operator, orgId, { keep_code: false, keep_output: false })
    await front.store.forget('2999-01-01T00:00:00.000Z', '2999-01-01T00:00:00.000Z')
    expect((await get(`/v1/executions/${fresh.trace_id}`)).body).toMatchObject({
      code: 'echo fresh # ü',
      stdout: 'fresh\n',
      output_kept: true,
    })
    expect((await get(`/v1/executions/${old.trace_id}`)).body).toMatchObject({
      code: null,
      stdout: null,
      stdout_bytes: 4,
      output_kept: false,
    })
    expect((await output(old.trace_id)).at(-1)).toMatchObject({ type: 'result', stdout: null, exit_code: 0 })
  })

  it('deletes ended runs with their data, and no running ones', async () => {
    const { id, rest } = await begin(bash('sleep 30'))
    const { trace_id } = await execute(bash('true', { metadata: { gone: 1 }, idempotency_key: 'gone' }))
    expect(await forgetRuns(front.store, '2999-01-01T00:00:00.000Z')).toBeGreaterThan(1)
    expect((await get(`/v1/executions/${trace_id}`)).status).toBe(404)
    expect((await get('/v1/executions')).body.data.map((run) => run.trace_id)).toEqual([id])
    await front.post(`/v1/executions/${id}/cancel`, {}, one)
    await rest
  })
})
