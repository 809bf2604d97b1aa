import { describe, expect, it } from 'vitest'
import { callTool, execute, type Following, follow, post } from '../support/calls.ts'
import { until } from '../support/glovebox.ts'
import { slotsOf } from '../support/machine.ts'
import { openStory } from '../support/story.ts'

const story = openStory(['--no-prewarm-jails', '--runs-max', '1', '--queue-per-org', '2', '--queue-wait-s', '2'], {
  expectNoWarnings: true,
})

const cancel = (runId: string) => post(`${story.url}/v1/executions/${runId}/cancel`, {})

/** Starts a run that occupies the only place. */
async function occupy(): Promise<Following> {
  const run = await follow(story.url, 'bash', 'echo on; sleep 60')
  await run.said('on')
  return run
}

describe('a server that executes one run at a time', () => {
  it('executes waiting runs in order of arrival', async () => {
    const first = await occupy()
    const order: string[] = []
    const waiting = ['a', 'b'].map(async (name) => {
      const run = await execute(story.url, 'bash', `echo ${name}`)
      order.push(run.stdout)
      return run
    })
    await until(() => story.place.runs().length === 3, 'both wait')
    expect(slotsOf(story.place).filter(({ runPids }) => runPids.length > 0)).toHaveLength(1)
    await cancel(first.runId)
    for (const run of await Promise.all(waiting)) expect(run).toMatchObject({ exit_code: 0 })
    expect(order).toEqual(['a\n', 'b\n'])
  })

  it('rejects a run immediately when the queue is full, names a retry delay, and accepts it later', async () => {
    const first = await occupy()
    const rows = story.place.runs().length
    const waiting = [execute(story.url, 'bash', 'echo a'), execute(story.url, 'bash', 'echo b')]
    await until(() => story.place.runs().length === rows + 2, 'both wait')

    const rest = await post<{ error: string; message: string }>(`${story.url}/v1/sandbox/execute`, { code: 'print(1)' })
    expect(rest.status).toBe(503)
    expect(Number(rest.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(rest.body).toMatchObject({
      error: 'unavailable',
      message: 'All slots are busy (1 running) and the queue is full (2 waiting).',
    })
    const mcp = await callTool(story.url, { code: 'print(1)' })
    expect(mcp.status).toBe(503)
    expect(Number(mcp.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(mcp.body).toMatchObject({ id: 1, error: { code: -32000, data: { error: 'unavailable' } } })
    expect((await fetch(`${story.url}/readyz`)).status).toBe(200)

    await cancel(first.runId)
    await Promise.all(waiting)
    expect(await execute(story.url, 'python', 'print("now")')).toMatchObject({ stdout: 'now\n' })
    expect(story.place.runs()).toHaveLength(rows + 3)
  })

  it('rejects a run that has waited too long', async () => {
    const first = await occupy()
    const answer = await post<{ error: string }>(`${story.url}/v1/sandbox/execute`, { code: 'print(1)' })
    expect(answer.status).toBe(503)
    expect(answer.body).toMatchObject({
      error: 'unavailable',
      message: 'All slots are busy (1 running); the run waited 2 s without getting one.',
    })
    await cancel(first.runId)
    expect(await execute(story.url, 'bash', 'echo next')).toMatchObject({ stdout: 'next\n' })
  })

  it('cancels a waiting run before it executes', async () => {
    const first = await occupy()
    const rows = story.place.runs().length
    const waiting = execute(story.url, 'bash', 'echo never')
    await until(() => story.place.runs().length === rows + 1, 'it waits')
    const { id } = story.place.runs().at(-1) ?? {}
    expect((await cancel(String(id))).status).toBe(200)
    expect(await waiting).toMatchObject({ ending: { kind: 'cancelled' }, stdout: '', duration_ms: 0 })
    await cancel(first.runId)
    await first.result
    expect(await execute(story.url, 'bash', 'echo next')).toMatchObject({ stdout: 'next\n' })
  })

  it('rejects cancelling a run that has ended or never existed', async () => {
    const { trace_id } = await execute(story.url, 'bash', 'true')
    expect((await cancel(trace_id)).status).toBe(409)
    expect((await cancel('trc_AAAAAAAAAAAAAAAAAAAA')).status).toBe(404)
    expect((await cancel(encodeURIComponent('../../x'))).status).toBe(404)
  })
})
