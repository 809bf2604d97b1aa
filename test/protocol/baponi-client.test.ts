import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

let front: Front
beforeAll(async () => {
  front = await openFront(threadsProfile)
})
afterAll(() => front.close())

/** As the Python package names itself in every request. */
const client = { 'x-client-id': 'baponi-python/direct' }
const lines = { ...client, accept: 'application/x-ndjson' }

const linesOf = async (response: Response): Promise<Record<string, unknown>[]> =>
  (await response.text())
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Record<string, unknown>)

const execute = (code: string, headers: Record<string, string>) =>
  front.post('/v1/sandbox/execute', { language: 'bash', code }, headers)

describe('a client of Baponi', () => {
  it('receives the lines of a stream in its own form', async () => {
    const received = await linesOf(await execute('echo out; echo err >&2; exit 3', lines))
    const traceId = received[0]?.trace_id
    expect(received[0]).toEqual({ type: 'status', seq: 0, status: 'running', trace_id: traceId })
    expect(received.slice(1, -1)).toEqual(
      expect.arrayContaining([
        { type: 'output', stream: 'stdout', data: 'out\n', seq: expect.any(Number) },
        { type: 'output', stream: 'stderr', data: 'err\n', seq: expect.any(Number) },
      ]),
    )
    expect(received.at(-1)).toEqual({
      ...{ type: 'result', trace_id: traceId, status: 'failed', seq: expect.any(Number), output_truncated: false },
      result: { success: false, stdout: 'out\n', stderr: 'err\n', exit_code: 3, error: expect.any(String) },
    })
    const [opening] = await linesOf(await execute('echo out', lines))
    const output = `${front.url}/v1/executions/${opening?.trace_id}/output`
    const resumed = await fetch(`${output}?after_seq=2`, { headers: lines })
    expect((await linesOf(resumed))[1]).toMatchObject({ type: 'output', stream: 'stdout', data: 'ut\n' })
  })

  it('reads a duration as a whole number, also of a run that has not ended', async () => {
    const accepted = await execute('sleep 30', { ...client, prefer: 'respond-async' })
    const { trace_id: id } = (await accepted.json()) as { trace_id: string }
    const read = async (headers: Record<string, string>) =>
      ((await (await fetch(`${front.url}/v1/executions/${id}`, { headers })).json()) as { duration_ms: unknown })
        .duration_ms
    expect([await read(client), await read({})]).toEqual([0, null])
    await front.post(`/v1/executions/${id}/cancel`, '', client)
  })

  it('gets links at its own paths, with its own name for the size', async () => {
    await front.post('/v1/sandbox/execute', { language: 'bash', code: 'true', thread_id: 'links' })
    const file = { source: 'thread', id: 'links', path: 'up.txt' }
    const link = async (kind: string, more: object) => {
      const response = await front.post(`/v1/files/${kind}`, { ...file, ...more }, client)
      return ((await response.json()) as { url: string }).url
    }
    const upload = await link('upload_url', { content_length: 5, content_type: 'text/plain' })
    expect((await fetch(upload, { method: 'PUT', body: 'hello' })).status).toBe(200)
    expect(await (await fetch(await link('download_url', {}))).text()).toBe('hello')
    const refused = await front.post('/v1/files/upload', file, client)
    expect([refused.status, JSON.stringify(await refused.json())]).toEqual([400, expect.stringContaining('size')])
  })
})

describe('another client', () => {
  it('receives the lines that the documentation describes', async () => {
    const received = await linesOf(await execute('echo out', { accept: 'application/x-ndjson' }))
    expect(received.map(({ type }) => type)).toEqual(['status', 'stdout', 'result'])
  })
})
