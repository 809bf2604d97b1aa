import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { timestamp } from '../../../src/base/clock.ts'
import { Refusal } from '../../../src/base/errors.ts'
import { operator } from '../../../src/core/admin/admin.ts'
import { setLimits, usageOf } from '../../../src/core/admin/limits.ts'
import type { ExecuteEvent } from '../../../src/core/runs/execute-event.ts'
import { RefusedCalls } from '../../../src/core/runs/refused-calls.ts'
import type { ExecuteRequest } from '../../../src/core/runs/request.ts'
import { type OpenCore, openCore, threadsProfile } from '../../support/front.ts'

let opened: OpenCore
beforeAll(async () => {
  opened = await openCore(threadsProfile)
})
afterAll(() => opened.close())

async function call(more: Partial<ExecuteRequest> = {}): Promise<ExecuteEvent[]> {
  const request = { code: 'echo ran', language: 'bash', detached: true, ...more } as const
  const seen: ExecuteEvent[] = []
  for await (const event of opened.core.execute(opened.caller, request, new AbortController().signal)) seen.push(event)
  return seen
}

/** What the calls of the developer left in the database. */
async function stored() {
  const { store, caller } = opened
  const end = { createdAt: '9999', id: '' }
  const [day] = timestamp().split('T')
  const usage = await usageOf(opened.core.adminContext, operator, caller.orgId, { from: day! })
  return {
    runs: (await store.history.page(caller.orgId, {}, end, 1_000)).rows.length,
    audit: (await store.audit.head()).seq,
    threads: (await store.threads.page(caller.orgId, '', 1_000)).length,
    pending: await store.deliveries.outstanding(caller.orgId, 1_000),
    refused: usage.reduce((sum, row) => sum + row.refused, 0),
    counted: usage.reduce((sum, row) => sum + row.runs, 0),
  }
}

/** Makes calls that the full queue refuses. */
async function whileFull(calls: () => Promise<unknown>): Promise<void> {
  opened.runner.maxRuns = 0
  await calls().finally(() => {
    opened.runner.maxRuns = 32
  })
}

const limit = (amounts: object) =>
  setLimits(opened.core.adminContext, operator, { orgId: opened.caller.orgId }, amounts).then(
    // A limit is known everywhere within half a second.
    () => new Promise((resolve) => setTimeout(resolve, 600)),
  )

describe('a refused call', () => {
  it('is counted in the usage and the metrics, and leaves no run, audit line, thread or delivery', async () => {
    const before = await stored()
    await whileFull(async () => {
      for (const more of [{}, { threadId: 'work' }, { metadata: { a: 1 } }, { idempotencyKey: 'full' }]) {
        await expect(call(more)).rejects.toMatchObject({ code: 'queue_full' })
      }
      const webhook = { deliveryMode: 'webhook', webhookUrl: 'http://127.0.0.1:9/' } as const
      await expect(call(webhook)).rejects.toMatchObject({ code: 'queue_full' })
    })
    await vi.waitFor(async () => expect((await stored()).refused).toBe(before.refused + 5), 5_000)
    expect(await stored()).toEqual({ ...before, refused: before.refused + 5 })
    expect(await opened.metrics.text(undefined)).toContain('glovebox_runs_refused_total{reason="queue_full"} 5')
  })

  it('frees its thread and its idempotency key for the next call', async () => {
    await whileFull(() => expect(call({ threadId: 'freed', idempotencyKey: 'again' })).rejects.toThrow())
    const kinds = (await call({ threadId: 'freed', idempotencyKey: 'again' })).map(({ kind }) => kind)
    expect(kinds).toEqual(['accepted', 'running', 'output', 'ended'])
  })

  it('is refused for its simultaneous repeats as well', async () => {
    const before = await stored()
    const start = opened.runner.start.bind(opened.runner)
    let refuse: () => void = () => {}
    opened.runner.start = async (...words) => {
      await new Promise<void>((resolve) => (refuse = resolve))
      return start(...words)
    }
    await whileFull(async () => {
      const first = call({ idempotencyKey: 'twice' })
      const refused = expect(first).rejects.toMatchObject({ code: 'queue_full' })
      await vi.waitFor(async () => expect((await stored()).runs).toBe(before.runs + 1))
      const repeat = expect(call({ idempotencyKey: 'twice' })).rejects.toMatchObject({ code: 'unavailable' })
      await new Promise((resolve) => setTimeout(resolve, 50))
      refuse()
      await Promise.all([refused, repeat])
    })
    opened.runner.start = start
    expect((await stored()).runs).toBe(before.runs)
  })

  it('has an ending when the connection was lost, since its code may have been executed', async () => {
    const before = await stored()
    const start = opened.runner.start.bind(opened.runner)
    opened.runner.start = async (...words) => {
      opened.runner.readiness = { ready: false, reason: 'the runner is gone' }
      return start(...words)
    }
    await expect(call()).rejects.toMatchObject({ code: 'unavailable' })
    opened.runner.start = start
    opened.runner.readiness = { ready: true }
    expect(await stored()).toMatchObject({ runs: before.runs + 1, audit: before.audit + 1 })
  })
})

describe('calls that find the same full queue', () => {
  const full = (waiting: number) => new Refusal('queue_full', { running: 4, waiting, retryAfterSeconds: 1 })
  const counting = () => new RefusedCalls({ store: opened.store, metrics: opened.metrics, log: opened.log })
  const callOf = (orgId: string) => ({ orgId, keyId: opened.caller.keyId })

  it('are refused before anything is written, for some milliseconds after the first', async () => {
    const refused = counting()
    refused.count(callOf('org_a'), full(8))
    expect(() => refused.expectRoom('org_a')).toThrow(/the queue is full \(8 waiting\)/)
    expect(() => refused.expectRoom('org_b')).not.toThrow()
    await vi.waitFor(() => {
      try {
        refused.expectRoom('org_a')
      } catch (error) {
        refused.count(callOf('org_a'), error as Refusal) // Does not prolong it.
        throw error
      }
    })
  })

  it('are refused in this way with new idempotency keys, too, and a repeat finds its run meanwhile', async () => {
    await call({ idempotencyKey: 'before' })
    const begin = vi.spyOn(opened.store.runs, 'beginOnce')
    opened.runner.waiting = 8
    await whileFull(async () => {
      await expect(call({ idempotencyKey: 'first' })).rejects.toMatchObject({ code: 'queue_full' })
      const others = Array.from({ length: 20 }, (_, at) => call({ idempotencyKey: `other-${at}` }))
      for (const other of await Promise.allSettled(others))
        expect(other).toMatchObject({ reason: { code: 'queue_full' } })
      expect((await call({ idempotencyKey: 'before' })).at(-1)).toMatchObject({ kind: 'recorded' })
    }).finally(() => {
      opened.runner.waiting = 0
    })
    // On a busy machine that takes longer than the queue is taken to be full, and some are tried.
    expect(begin.mock.calls.length).toBeLessThan(15)
    begin.mockRestore()
  })

  it('are each tried when no run waits, since a place can become free at any moment', () => {
    const refused = counting()
    refused.count(callOf('org_a'), full(0))
    expect(() => refused.expectRoom('org_a')).not.toThrow()
  })
})

describe('an idempotent repeat', () => {
  it('counts towards no limit, also beside its first call', async () => {
    await limit({ runs_per_minute: 2, concurrent_runs: 1, storage_bytes: 16 * 1024 * 1024 })
    const request = { idempotencyKey: 'one', threadId: 'only', code: 'sleep 0.3; echo ran' }
    const [first, ...repeats] = await Promise.all([call(request), call(request), call(request)])
    for (const events of [first!, ...repeats, await call(request), await call(request)]) {
      expect(events.at(-1)).toMatchObject({ result: { ending: { kind: 'exited', code: 0 } } })
    }
    await call({ idempotencyKey: 'two' })
    await expect(call()).rejects.toMatchObject({ code: 'limit_reached', details: { limit: 'runs_per_minute' } })
    await limit({})
  })
})

describe('a call that a limit refuses', () => {
  it('leaves nothing, and neither does one that the queue refuses count as started', async () => {
    await limit({ runs_per_minute: 3 })
    await whileFull(() => expect(call()).rejects.toMatchObject({ code: 'queue_full' }))
    await call()
    const before = await stored()
    await expect(call()).rejects.toMatchObject({ code: 'limit_reached' })
    await vi.waitFor(async () => expect((await stored()).refused).toBeGreaterThan(before.refused))
    expect(await stored()).toMatchObject({ runs: before.runs, audit: before.audit, counted: before.counted })
    await limit({})
  })
})
