import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type Front, openFront, testProfile } from '../support/front.ts'
import { rawRequest } from '../support/raw-http.ts'

let front: Front
beforeAll(async () => {
  front = await openFront()
})
afterAll(async () => {
  await front.close()
})

interface Message {
  method?: string
  params?: { progressToken: unknown; progress: number; message: string }
  id?: unknown
  result?: { isError: boolean; structuredContent: { stdout: string; trace_id: string; ending: { kind: string } } }
  error?: { code: number }
}

const both = { accept: 'application/json, text/event-stream' }

const call = (code: string, meta: object = { progressToken: 'tok' }, id: unknown = 1) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name: 'sandbox_execute', arguments: { code, language: 'bash' }, _meta: meta },
})

const toMessages = (text: string): Message[] =>
  text
    .split('\n\n')
    .filter((event) => event.startsWith('event: message\n'))
    .map((event) => JSON.parse(event.split('\ndata: ')[1]!))

describe('a call with a progress token', () => {
  it('streams output as numbered progress, and then the complete result', async () => {
    const response = await front.post('/mcp', call('echo one; sleep 0.1; echo two >&2; sleep 0.1; printf three'), both)
    expect(response.headers.get('content-type')).toBe('text/event-stream')
    expect(response.headers.get('x-accel-buffering')).toBe('no')
    const messages = toMessages(await response.text())
    expect(messages.slice(0, -1).map(({ method, params }) => [method, params])).toEqual([
      ['notifications/progress', { progressToken: 'tok', progress: 1, message: 'one\n' }],
      ['notifications/progress', { progressToken: 'tok', progress: 2, message: 'two\n' }],
      ['notifications/progress', { progressToken: 'tok', progress: 3, message: 'three' }],
    ])
    expect(messages.at(-1)).toMatchObject({ id: 1, result: { structuredContent: { stdout: 'one\nthree' } } })
  })

  it('receives progress before the run has ended', async () => {
    const response = await front.post('/mcp', call('echo early; sleep 1'), both)
    const reader = response.body!.getReader()
    const { value } = await reader.read()
    expect(Buffer.from(value!).toString()).toContain('early')
    await reader.cancel()
  })

  it('is plain JSON for a client that does not accept event streams', async () => {
    for (const accept of ['application/json', '*/*', '']) {
      const response = await front.post('/mcp', call('echo x'), { accept })
      expect(response.headers.get('content-type')).toContain('application/json')
      expect(((await response.json()) as Message).id).toBe(1)
    }
  })

  it('is plain JSON when it is rejected, with the status of the refusal', async () => {
    front.runner.maxRuns = 0
    const response = await front.post('/mcp', call('echo x'), both)
    front.runner.maxRuns = 32
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '2'])
    expect(((await response.json()) as Message).error?.code).toBe(-32000)
  })

  it('receives its token unchanged, also when it is zero', async () => {
    const messages = toMessages(await (await front.post('/mcp', call('echo x', { progressToken: 0 }), both)).text())
    expect(messages[0]?.params?.progressToken).toBe(0)
  })
})

describe('a call without a progress token', () => {
  it('is plain JSON also for a client that accepts event streams', async () => {
    for (const meta of [{}, { progressToken: null }, { progressToken: {} }]) {
      const response = await front.post('/mcp', call('echo x', meta), both)
      expect(response.headers.get('content-type')).toContain('application/json')
      await response.text()
    }
  })
})

describe('a client that does not read its stream', () => {
  const limitBytes = 32 * 1024 * 1024
  const rest = (code: string) => JSON.stringify({ code, language: 'bash' })
  const limits = { ...testProfile.limits, outputSoftBytes: limitBytes, outputHardBytes: limitBytes }

  for (const [how, code] of [
    ['ends', 'yes | head -c 30000000'],
    ['is cancelled', 'yes | head -c 30000000; sleep 60'],
    ['was asked for over REST', 'yes | head -c 30000000'],
  ] as const) {
    it(`does not delay the row or the thread of its run when the run ${how}`, async () => {
      const own = await openFront({ ...testProfile, limits })
      const deaf = connect(own.port, '127.0.0.1').pause()
      const headers = { host: `127.0.0.1:${own.port}`, 'content-type': 'application/json', ...both }
      deaf.write(
        how === 'was asked for over REST'
          ? rawRequest('POST', '/v1/sandbox/execute', { ...headers, accept: 'application/x-ndjson' }, rest(code))
          : rawRequest('POST', '/mcp', headers, JSON.stringify(call(code, undefined, 'deaf'))),
      )
      await vi.waitFor(() => expect(own.runner.specs.size).toBe(1), 20_000)
      if (how === 'is cancelled') {
        await vi.waitFor(() => expect(own.runner.writtenBytes()).toBe(30_000_000), 20_000)
        await own.post('/mcp', { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'deaf' } })
      }
      await vi.waitFor(async () => expect(await own.store.runs.unfinished()).toEqual([]), 10_000)
      deaf.destroy()
      await own.close()
    }, 60_000)
  }
})

describe('a client that disconnects', () => {
  it('does not cancel its run, whose row gets its ending', async () => {
    for (const headers of [both, { accept: 'application/json' }]) {
      const before = new Set(front.runner.specs.keys())
      const leaving = new AbortController()
      const left = fetch(`${front.url}/mcp`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(call('echo x; sleep 1.5; exit 9')),
        signal: leaving.signal,
      })
        .then((response) => response.text())
        .catch(() => 'left')
      const runId = await vi.waitFor(() => {
        const started = [...front.runner.specs.keys()].find((id) => !before.has(id))
        expect(started).toBeDefined()
        return started!
      }, 10_000)
      leaving.abort()
      expect(await left).toBe('left')
      expect((await front.store.runs.get(runId))?.ending).toBeNull()
      await vi.waitFor(async () => {
        expect((await front.store.runs.get(runId))?.ending).toEqual({ kind: 'exited', code: 9 })
      }, 10_000)
    }
  })
})

describe('notifications/cancelled', () => {
  const cancel = (requestId: unknown) =>
    front.post('/mcp', { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId, reason: 'enough' } })
  const started = async (count: number) => {
    const running = async () => (await front.store.runs.unfinished()).length
    await vi.waitFor(async () => expect(await running()).toBe(count), 10_000)
  }
  const answered = async (response: Promise<Response>) => (await (await response).json()) as Message

  it('cancels the call of that id, which returns the output so far', async () => {
    const answer = answered(front.post('/mcp', call('echo x; sleep 60', {}, 'mine')))
    await started(1)
    expect((await cancel('mine')).status).toBe(202)
    expect((await answer).result).toMatchObject({ isError: true, structuredContent: { ending: { kind: 'cancelled' } } })
  })

  it('distinguishes a number from the same digits as text', async () => {
    const answer = answered(front.post('/mcp', call('sleep 1.5', {}, 7)))
    await started(1)
    await cancel('7')
    expect((await answer).result?.structuredContent.ending.kind).toBe('exited')
  })

  it('cancels nothing when two calls have that id, since one may belong to another client', async () => {
    const answers = [call('sleep 2', {}, 1), call('sleep 2', {}, 1)].map((body) => answered(front.post('/mcp', body)))
    await started(2)
    await cancel(1)
    for (const answer of answers) expect((await answer).result?.structuredContent.ending.kind).toBe('exited')
  })

  it('is accepted without effect when no call has that id', async () => {
    for (const id of ['gone', null, {}, undefined]) expect((await cancel(id)).status).toBe(202)
  })
})
