import { afterEach, describe, expect, it } from 'vitest'
import { Refusal } from '../../src/base/errors.ts'
import type { BusyAnswer } from '../../src/base/profile.ts'
import { ChangeFeed } from '../../src/mcp/change-feed.ts'
import { fixtureTool, text } from '../conformance/fixture-tool.ts'
import { type Front, openFront, testProfile } from '../support/front.ts'
import { askModern } from '../support/modern.ts'

let front: Front
afterEach(() => front.close())

/** A front whose only tool is rejected with thread_busy this many times before it runs. */
async function open(onBusyThread: BusyAnswer, refusals: number): Promise<Front> {
  let left = refusals
  const tool = fixtureTool('in_thread', 'Runs in a thread', () => {
    if (left-- > 0) throw new Refusal('thread_busy', { thread: 't1' })
    return [text('ran')]
  })
  const profile = { ...testProfile, calls: { ...testProfile.calls, onBusyThread, busyWaitMs: 600 } }
  const inventory = { tools: [tool], prompts: [], resources: [], templates: [] }
  front = await openFront(profile, {}, { inventory, changes: new ChangeFeed() })
  return front
}

const params = { name: 'in_thread', arguments: {} }
const legacy = () =>
  front.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, { 'mcp-protocol-version': '2025-11-25' })

describe('a call whose thread is busy', () => {
  it('is a conflict with a hint, in both protocol generations', async () => {
    await open('refuse', 2)
    const answer = await legacy()
    expect(answer.status).toBe(409)
    expect(await answer.json()).toMatchObject({
      id: 1,
      error: {
        code: -32000,
        message: expect.stringMatching(/thread t1 is busy.*(Wait|wait)/),
        data: { error: 'conflict' },
      },
    })
    const modern = await askModern(front.url, 'tools/call', params)
    expect([modern.status, modern.body.error?.code]).toEqual([409, -32000])
  })

  it('is a result that the model sees, if the profile says so', async () => {
    await open('result', 1)
    const answer = await legacy()
    expect(answer.status).toBe(200)
    expect(await answer.json()).toMatchObject({
      result: { isError: true, content: [{ text: expect.stringContaining('busy') }] },
    })
  })

  it('is what the URL says, whatever the profile says', async () => {
    await open('refuse', 1)
    const call = (path: string) => front.post(path, { jsonrpc: '2.0', id: 1, method: 'tools/call', params })
    const result = await call('/mcp?busy=result')
    expect(await result.json()).toMatchObject({
      result: { isError: true, content: [{ text: expect.stringContaining('busy') }] },
    })
    await front.close()
    await open('refuse', 3)
    expect(await (await call('/mcp?busy=wait')).json()).toMatchObject({ result: { content: [{ text: 'ran' }] } })
  })

  it('waits for its turn up to a limit, if the profile says so', async () => {
    await open('wait', 3)
    expect(await (await legacy()).json()).toMatchObject({ result: { isError: false, content: [{ text: 'ran' }] } })
    await front.close()
    await open('wait', 1_000)
    expect((await legacy()).status).toBe(409)
  })
})
