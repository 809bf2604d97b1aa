import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, vi } from 'vitest'
import { callTool } from '../support/calls.ts'
import { askModern, sendModern, tasksExtension } from '../support/modern.ts'
import { openStory } from '../support/story.ts'

const story = openStory()

const capabilities = { extensions: { [tasksExtension]: {} } }
const ask = (method: string, params: Record<string, unknown>) => askModern(story.url, method, params, { capabilities })
const execute = (args: object) => ask('tools/call', { name: 'sandbox_execute', arguments: args })

/** Kills one process of the server with SIGKILL and waits until the server is ready again. */
async function kill(pid: number): Promise<void> {
  process.kill(pid, 'SIGKILL')
  await sleep(200)
  await story.server.ready()
}

describe('an MCP task', () => {
  it('survives the death of the front that created it', async () => {
    const { body } = await execute({ code: 'echo before; sleep 6; echo after', language: 'bash' })
    expect(body.result?.resultType).toBe('task')
    await kill(story.server.frontPid)
    await vi.waitFor(
      async () => {
        const { body: told } = await ask('tasks/get', { taskId: String(body.result?.taskId) })
        expect(told.result).toMatchObject({
          status: 'completed',
          result: { structuredContent: { stdout: 'before\nafter\n', exit_code: 0 } },
        })
      },
      { timeout: 30_000, interval: 200 },
    )
  }, 90_000)
})

describe('a call of a client that supports tasks but has not received one', () => {
  it('ends with its front, since the client has no task id to resume it', async () => {
    const lost = execute({ code: 'sleep 300', language: 'bash' }).catch(() => 'lost')
    await vi.waitFor(() => expect(story.place.runs().at(-1)).toMatchObject({ finished_at: null }), 5_000)
    await sleep(300)
    await kill(story.server.frontPid)
    expect(await lost).toBe('lost')
    await vi.waitFor(() => expect(story.place.runs().at(-1)?.ending).toBe('{"kind":"cancelled"}'), 15_000)
  }, 60_000)
})

describe('a call with an idempotency key', () => {
  it('is reported as interrupted when the runner dies, and never executed again', async () => {
    const args = { code: 'echo started; sleep 60', language: 'bash', idempotency_key: 'once' }
    const lost = callTool(story.url, args).catch(() => undefined)
    const rows = () => story.place.runs().filter(({ detached, finished_at }) => detached === 1 && finished_at === null)
    await vi.waitFor(() => expect(rows()).toHaveLength(1), 20_000)
    await kill(story.server.runnerPid)
    await lost
    const before = story.place.runs().length
    const { body } = await callTool(story.url, args)
    expect(body.result?.structuredContent).toMatchObject({ ending: { kind: 'failed' } })
    expect(story.place.runs()).toHaveLength(before)
  }, 90_000)

  it('joins a repeated call to the running execution, also after a front restart', async () => {
    const args = { code: 'echo $RANDOM; sleep 5', language: 'bash', idempotency_key: 'joined' }
    const lost = callTool(story.url, args).catch(() => undefined)
    await sleep(1_000)
    await kill(story.server.frontPid)
    await lost
    const before = story.place.runs().length
    const { body } = await callTool(story.url, args)
    expect(body.result?.structuredContent).toMatchObject({ exit_code: 0, stdout: expect.stringMatching(/^\d+\n$/) })
    expect(story.place.runs()).toHaveLength(before)
  }, 90_000)
})

describe('a 2026-07-28 client that disconnects', () => {
  it('cancels its run', async () => {
    const client = new AbortController()
    const params = { name: 'sandbox_execute', arguments: { code: 'sleep 60', language: 'bash' } }
    const asked = sendModern(story.url, 'tools/call', params, { signal: client.signal }).catch(() => 'gone')
    await vi.waitFor(() => expect(story.place.runs().at(-1)?.finished_at).toBeNull(), 20_000)
    await sleep(300)
    client.abort()
    expect(await asked).toBe('gone')
    await vi.waitFor(() => expect(story.place.runs().at(-1)?.ending).toBe('{"kind":"cancelled"}'), 5_000)
  }, 60_000)
})
