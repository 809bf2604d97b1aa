import { afterAll, describe, expect, it, vi } from 'vitest'
import { callTool, execute, executeBody, post } from '../support/calls.ts'
import { type Glovebox, Place } from '../support/glovebox.ts'

const places: Place[] = []
afterAll(async () => {
  for (const place of places) await place.remove()
})

/** A server whose calls handle a busy thread as these flags say, and a thread of it that is busy for a while. */
async function withBusyThread(seconds: number, ...flags: string[]) {
  const place = new Place()
  places.push(place)
  const server = await place.start('--limit-thread', '16MiB', '--storage-reserve', '0', ...flags)
  const code = `echo first >told; sleep ${seconds}`
  const holding = execute(server.url, 'bash', code, { thread_id: 'mine' })
  await vi.waitFor(() => expect(place.runs().at(-1)).toMatchObject({ finished_at: null }), 10_000)
  return { place, server, holding }
}

const read = { language: 'bash', code: 'cat told', thread_id: 'mine' }
const ran = (place: Place): number => place.runs().length

describe('a call for a busy thread', () => {
  it('waits for its turn, and then sees what the other run wrote', async () => {
    const { place, server, holding } = await withBusyThread(2, '--thread-busy', 'wait', '--thread-busy-wait-s', '20')
    const { body } = await callTool(server.url, read)
    expect(body.result?.structuredContent).toMatchObject({ stdout: 'first\n', exit_code: 0 })
    await holding
    expect(ran(place)).toBe(2)
    await expectCancellable(server, place)
  }, 90_000)

  it('waits no longer than the profile allows', async () => {
    const { server, holding } = await withBusyThread(4, '--thread-busy', 'wait', '--thread-busy-wait-s', '1')
    expect(await callTool(server.url, read)).toMatchObject({ status: 409, body: { error: { code: -32000 } } })
    await holding
    expect((await callTool(server.url, read)).body.result?.structuredContent.stdout).toBe('first\n')
  }, 90_000)

  it('returns a result that the model can read where the profile says so, and succeeds when repeated', async () => {
    const { place, server, holding } = await withBusyThread(2, '--thread-busy', 'result')
    const { status, body } = await callTool(server.url, read)
    expect(status).toBe(200)
    expect(body.result).toMatchObject({ isError: true, content: [{ text: expect.stringMatching(/mine is busy/) }] })
    expect(ran(place)).toBe(1)
    await holding
    expect((await callTool(server.url, read)).body.result?.structuredContent.stdout).toBe('first\n')
  }, 90_000)
})

/** A waiting call returns immediately when it is cancelled, and never executes. */
async function expectCancellable(server: Glovebox, place: Place): Promise<void> {
  const holding = execute(server.url, 'bash', 'sleep 3', { thread_id: 'mine' })
  await vi.waitFor(() => expect(place.runs().at(-1)).toMatchObject({ finished_at: null }), 10_000)
  const before = ran(place)
  const waiting = post(`${server.url}/mcp`, executeBody('waits', read))
  await new Promise((resolve) => setTimeout(resolve, 500))
  const params = { requestId: 'waits' }
  await post(`${server.url}/mcp`, { jsonrpc: '2.0', method: 'notifications/cancelled', params })
  expect((await waiting).status).toBe(409)
  expect(place.runs().at(-1)).toMatchObject({ finished_at: null })
  await holding
  expect(ran(place)).toBe(before)
}
