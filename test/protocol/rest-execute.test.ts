import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type Front, openFront, testProfile } from '../support/front.ts'
import { rawRequest } from '../support/raw-http.ts'

let front: Front
beforeAll(async () => {
  const limits = { ...testProfile.limits, outputSoftBytes: 4 * 1024 * 1024, outputHardBytes: 64 * 1024 * 1024 }
  front = await openFront({ ...testProfile, limits })
})
afterAll(async () => {
  await front.close()
})

interface Line {
  type: string
  seq: number
  data?: string
  data_base64?: string
  trace_id?: string
  [field: string]: unknown
}

const path = '/v1/sandbox/execute'
const lines = { accept: 'application/x-ndjson' }
const bash = (code: string, more: object = {}) => ({ code, language: 'bash', ...more })

const toLines = (text: string): Line[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line)

describe('a buffered execution', () => {
  it('returns the output of the program and its ending', async () => {
    const response = await front.post(path, { code: 'print(sum(range(100)))' })
    const body = (await response.json()) as Record<string, unknown>
    expect(response.status).toBe(200)
    expect(body).toMatchObject({
      success: true,
      status: 'success',
      stdout: '4950\n',
      stderr: '',
      exit_code: 0,
      error: null,
      truncated: false,
      delivery_mode: 'inline',
      ending: { kind: 'exited', code: 0 },
    })
    expect(response.headers.get('x-trace-id')).toBe(body.trace_id)
  })

  it('returns 200 for every run that started', async () => {
    const cases: [object, object][] = [
      [bash('exit 7'), { status: 'failed', exit_code: 7, error: 'exited with code 7' }],
      [bash('kill -SEGV $$'), { status: 'failed', exit_code: 139, error: 'ended by signal SIGSEGV' }],
      [bash('sleep 9', { timeout: 1 }), { status: 'timeout', exit_code: 124, error: 'killed after 1 s (timed out)' }],
    ]
    for (const [body, expected] of cases) {
      const response = await front.post(path, body)
      expect(response.status).toBe(200)
      expect(await response.json()).toMatchObject({ success: false, ...expected })
    }
  })

  it('rejects invalid bodies by field', async () => {
    const cases: [unknown, string][] = [
      [{}, 'code is required'],
      [{ code: 'x', timeout: 999 }, 'the maximum in this profile is 60 s'],
      [{ code: 'x', timeout: 'long' }, 'timeout must be an integer'],
      [{ code: 'x', subjekt: 's' }, '"subjekt" is not a known field; did you mean subject'],
      [[], 'arguments must be an object'],
      ['{', 'not valid JSON'],
    ]
    for (const [body, message] of cases) {
      const response = await front.post(path, body)
      expect(response.status).toBe(400)
      expect(await response.json()).toMatchObject({
        message: expect.stringContaining(message),
        hint: expect.any(String),
      })
    }
  })

  it('returns 503 with Retry-After when no place is free', async () => {
    front.runner.maxRuns = 0
    const responses = [await front.post(path, bash('true')), await front.post(path, bash('true'), lines)]
    front.runner.maxRuns = 32
    for (const response of responses) {
      expect([response.status, response.headers.get('retry-after')]).toEqual([503, '2'])
      expect(await response.json()).toMatchObject({ error: 'unavailable', hint: 'Retry in 2 s.' })
    }
  })
})

describe('a streamed execution', () => {
  it('sends the id first, output as it is printed, and the complete execution last', async () => {
    const response = await front.post(path, bash('echo one; sleep 0.1; echo two >&2; exit 2'), lines)
    expect(response.headers.get('content-type')).toBe('application/x-ndjson')
    const told = toLines(await response.text())
    expect(told.map(({ type, data }) => [type, data])).toEqual([
      ['status', undefined],
      ['stdout', 'one\n'],
      ['stderr', 'two\n'],
      ['result', undefined],
    ])
    expect(told[0]).toMatchObject({ seq: 0, status: 'running', trace_id: response.headers.get('x-trace-id') })
    expect(told.at(-1)).toMatchObject({ status: 'failed', exit_code: 2, stdout: 'one\n', delivery_mode: 'streaming' })
    const numbers = told.map(({ seq }) => seq)
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b))
  })

  it('never splits a character between two lines', async () => {
    const code = "printf '\\xe2'; sleep 0.1; printf '\\x82'; sleep 0.1; printf '\\xac'"
    const told = toLines(await (await front.post(path, bash(code), lines)).text())
    expect(told.filter(({ type }) => type === 'stdout').map(({ data }) => data)).toEqual(['€'])
  })

  it('returns the raw bytes on request', async () => {
    const response = await front.post(`${path}?encoding=base64`, bash("printf '\\xff\\x00\\xfe'"), lines)
    const [, output] = toLines(await response.text())
    expect(Buffer.from(output?.data_base64 ?? '', 'base64')).toEqual(Buffer.from([0xff, 0x00, 0xfe]))
    expect((await front.post(`${path}?encoding=utf-7`, bash('true'))).status).toBe(400)
  })

  it('continues when the client disconnects, and its row gets its ending', async () => {
    const leaving = new AbortController()
    const response = await fetch(`${front.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...lines },
      body: JSON.stringify(bash('echo x; sleep 1.5; exit 8')),
      signal: leaving.signal,
    })
    const runId = response.headers.get('x-trace-id') ?? ''
    leaving.abort()
    await response.text().catch(() => 'left')
    expect((await front.store.runs.get(runId))?.ending).toBeNull()
    await vi.waitFor(async () => {
      expect((await front.store.runs.get(runId))?.ending).toEqual({ kind: 'exited', code: 8 })
    }, 10_000)
  })

  it('sends everything to a client that starts reading late', async () => {
    const body = JSON.stringify(bash('head -c 3000000 /dev/zero | tr "\\0" x'))
    const headers = { host: `127.0.0.1:${front.port}`, 'content-type': 'application/json', ...lines }
    const socket = connect(front.port, '127.0.0.1')
    socket.pause()
    socket.write(rawRequest('POST', path, headers, body))
    await sleep(700)
    let text = ''
    for await (const piece of socket) text += (piece as Buffer).toString('latin1')
    expect(text).toContain('"type":"result"')
    expect(text.match(/x/g)!.length).toBeGreaterThanOrEqual(6_000_000)
  })
})

describe('cancelling an execution', () => {
  const cancel = (id: string) => front.post(`/v1/executions/${id}/cancel`, {})

  it('ends it, and the pending call returns its result', async () => {
    const response = await front.post(path, bash('echo x; sleep 60'), lines)
    const runId = response.headers.get('x-trace-id') ?? ''
    const answer = await cancel(runId)
    expect([answer.status, await answer.json()]).toEqual([200, { trace_id: runId, status: 'cancelling' }])
    expect(toLines(await response.text()).at(-1)).toMatchObject({ status: 'cancelled', exit_code: 130 })
    expect((await cancel(runId)).status).toBe(409)
  })

  it('is rejected for an unknown run', async () => {
    for (const id of ['trc_none', '__proto__', '%00', '..%2f..', 'x'.repeat(90)]) {
      expect([id, (await cancel(id)).status]).toEqual([id, 404])
    }
  })
})
