import { mkdtemp, rm } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createCore } from '../../src/core/core.ts'
import { buildServer } from '../../src/http/server.ts'
import { conformanceOffers } from '../conformance/inventory.ts'
import { coreSettings, type Front, gatewayOf, openFront, testProfile } from '../support/front.ts'
import { askModern, type ModernAnswer, sendModern, tasksExtension } from '../support/modern.ts'

let front: Front
let fixture: Front
let directory: string
beforeAll(async () => {
  directory = await mkdtemp(`${tmpdir()}/glovebox-tasks-`)
  front = await openFront()
  fixture = await openFront(undefined, {}, conformanceOffers())
})
afterAll(async () => {
  await front.close()
  await fixture.close()
  await rm(directory, { recursive: true })
})

const capabilities = { elicitation: {}, extensions: { [tasksExtension]: {} } }
const ask = (method: string, params: Record<string, unknown>, url = front.url): Promise<ModernAnswer> =>
  askModern(url, method, params, { capabilities })
const execute = (code: string) => ask('tools/call', { name: 'sandbox_execute', arguments: { code, language: 'bash' } })

async function task(code: string): Promise<string> {
  const { body } = await execute(code)
  expect(body.result).toMatchObject({ resultType: 'task', status: 'working', ttlMs: expect.any(Number) })
  return String(body.result?.taskId)
}

const untilEnded = (taskId: string, url = front.url) =>
  vi.waitFor(async () => {
    const { body } = await ask('tasks/get', { taskId }, url)
    expect(body.result?.status).not.toBe('working')
    return body.result
  }, 10_000)

describe('a long run of a client that supports tasks', () => {
  it('returns a task, whose result is that of the call', async () => {
    const taskId = await task('echo before; sleep 3; echo after; exit 4')
    expect(await untilEnded(taskId)).toMatchObject({
      resultType: 'complete',
      status: 'completed',
      result: { isError: true, structuredContent: { stdout: 'before\nafter\n', exit_code: 4 } },
    })
  })

  it('returns its result directly when it ends soon', async () => {
    expect((await execute('echo quick')).body.result).toMatchObject({ resultType: 'complete', isError: false })
  })

  it('is stopped by a cancellation', async () => {
    const taskId = await task('sleep 60')
    const { body } = await ask('tasks/cancel', { taskId })
    expect(body.result).toEqual({ resultType: 'complete', _meta: expect.anything() })
    expect((await untilEnded(taskId))?.status).toBe('cancelled')
    await vi.waitFor(async () => expect(await front.runner.list()).toEqual([]))
    expect((await ask('tasks/cancel', { taskId })).body.result).toMatchObject({ resultType: 'complete' })
  })

  it('is visible to its key only, and only to clients that support tasks', async () => {
    const taskId = await task('sleep 3')
    const stranger = await askModern(front.url, 'tasks/get', { taskId })
    expect([stranger.status, stranger.body.error?.code]).toEqual([400, -32021])
    const unknown = await ask('tasks/get', { taskId: `${taskId.slice(0, -1)}${taskId.endsWith('_') ? '-' : '_'}` })
    expect(unknown.body.error?.code).toBe(-32602)
    await ask('tasks/cancel', { taskId })
  })

  it('notifies a listener of its ending', async () => {
    const taskId = await task('sleep 3; echo done')
    const client = new AbortController()
    const params = { notifications: { taskIds: [taskId, 'tsk_unknown'] } }
    const response = await sendModern(front.url, 'subscriptions/listen', params, {
      capabilities,
      signal: client.signal,
    })
    const reader = response.body?.getReader()
    let text = ''
    while (!text.includes('completed')) text += new TextDecoder().decode((await reader?.read())?.value)
    client.abort()
    expect(text).toContain(`"notifications":{"taskIds":["${taskId}"]}`)
    expect(text).toContain('notifications/tasks')
  })
})

describe('a cancelled task', () => {
  it('is not logged as a fault, whether it was working or waiting for input', async () => {
    for (const [name, args] of [
      ['slow_compute', { seconds: 60 }],
      ['confirm_delete', { filename: 'f' }],
    ] as const) {
      const { body } = await ask('tools/call', { name, arguments: args }, fixture.url)
      const taskId = String(body.result?.taskId)
      await ask('tasks/cancel', { taskId }, fixture.url)
      expect((await untilEnded(taskId, fixture.url))?.status).toBe('cancelled')
    }
    expect(fixture.lines.filter((line) => line.includes('"level":"error"'))).toEqual([])
  })
})

describe('a task whose front has died', () => {
  /** Another front over the same rows and the same runner, as after a restart. */
  async function nextFront() {
    const core = await createCore({ ...front, profiles: [testProfile], ...coreSettings })
    const app = await buildServer({
      core,
      gateway: gatewayOf(core),
      metrics: front.metrics,
      log: front.log,
      config: {
        host: '127.0.0.1',
        port: 0,
        maxBodyBytes: 1024 * 1024,
        connectionsMax: 8192,
        allowedHosts: [],
        allowedOrigins: [],
        trustedProxies: [],
        dev: true,
        version: '0',
        uploadPace: { minBytesPerSecond: 0, windowMs: 30_000 },
        runtimeAllowed: [],
        publicUrl: '',
        previewDomain: '',
      },
    })
    await app.listen({ host: '127.0.0.1', port: 0 })
    const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`
    return {
      url,
      close: async () => {
        await app.close()
        await core.close('leave', 0)
      },
    }
  }

  it('still returns the result of its run', async () => {
    const taskId = await task('echo kept; sleep 4; echo too')
    const next = await nextFront()
    expect((await ask('tasks/get', { taskId }, next.url)).body.result?.status).toBe('working')
    expect(await untilEnded(taskId, next.url)).toMatchObject({
      status: 'completed',
      result: { structuredContent: { stdout: 'kept\ntoo\n', exit_code: 0 } },
    })
    await next.close()
  })

  it('can be cancelled, with its run', async () => {
    const taskId = await task('sleep 60')
    const next = await nextFront()
    await ask('tasks/cancel', { taskId }, next.url)
    await vi.waitFor(async () => expect(await front.runner.list()).toEqual([]), 5_000)
    await next.close()
  })
})
