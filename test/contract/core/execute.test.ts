import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Caller } from '../../../src/core/caller.ts'
import { type Core, createCore } from '../../../src/core/core.ts'
import type { ExecuteEvent } from '../../../src/core/runs/execute-event.ts'
import type { ExecuteRequest } from '../../../src/core/runs/request.ts'
import { coreSettings, type OpenCore, openCore, testProfile } from '../../support/front.ts'

let opened: OpenCore
beforeEach(async () => {
  opened = await openCore()
})
afterEach(async () => {
  await opened.close()
})

const bash = (code: string, more: Partial<ExecuteRequest> = {}): ExecuteRequest => ({
  code,
  language: 'bash',
  detached: true,
  ...more,
})

async function all(events: AsyncGenerator<ExecuteEvent>): Promise<ExecuteEvent[]> {
  const seen: ExecuteEvent[] = []
  for await (const event of events) seen.push(event)
  return seen
}

const execute = (request: ExecuteRequest, signal = new AbortController().signal, core: Core = opened.core) =>
  core.execute(opened.caller, request, signal)

/** Starts a run and returns its id and the remaining events. */
async function begin(request: ExecuteRequest, signal?: AbortSignal) {
  const events = execute(request, signal)
  const { value } = await events.next()
  if (value?.kind !== 'accepted') throw new Error('the run was not accepted first')
  return { runId: value.runId, events }
}

const endingOf = async (runId: string) => (await opened.store.runs.get(runId))?.ending

describe('a run', () => {
  it('is accepted, executes, prints and ends, and its row then has its ending', async () => {
    const seen = await all(execute(bash('echo hello; exit 3', { metadata: { job: 7 } })))
    expect(seen.map(({ kind }) => kind)).toEqual(['accepted', 'running', 'output', 'ended'])
    const [accepted] = seen
    const row = await opened.store.runs.get(accepted?.kind === 'accepted' ? accepted.runId : '')
    expect(row).toMatchObject({
      orgId: 'org_dev',
      keyId: 'key_dev',
      language: 'bash',
      metadata: '{"job":7}',
      ending: { kind: 'exited', code: 3 },
      result: { outputBytes: { stdout: 6, stderr: 0 } },
    })
    expect(row?.finishedAt).not.toBeNull()
  })

  it('carries its output, at its end and while it runs', async () => {
    const events = execute(bash('echo one; echo two >&2'))
    const { value: accepted } = await events.next()
    if (accepted?.kind !== 'accepted') throw new Error('the run was not accepted first')
    expect(accepted.outputSoFar().stdout.head).toHaveLength(0)
    const ended = (await all(events)).at(-1)
    const output = ended?.kind === 'ended' ? ended.output : undefined
    expect(Buffer.from(output?.stdout.head ?? []).toString()).toBe('one\n')
    expect(Buffer.from(output?.stderr.head ?? []).toString()).toBe('two\n')
    expect(accepted.outputSoFar()).toEqual(output)
  })

  it('is removed from the runner once its row is written', async () => {
    const { runId, events } = await begin(bash('true'))
    await all(events)
    await vi.waitFor(() => expect(opened.runner.acknowledged).toContain(runId))
  })

  it('has a row before it starts', async () => {
    const start = opened.runner.start.bind(opened.runner)
    let rowAtStart: unknown
    opened.runner.start = async (spec, input) => {
      rowAtStart = await opened.store.runs.get(spec.runId)
      await start(spec, input)
    }
    await all(execute(bash('true')))
    expect(rowAtStart).toMatchObject({ finishedAt: null, ending: null })
  })

  it('ends as cancelled when its caller aborts, with the output so far', async () => {
    const stop = new AbortController()
    const { runId, events } = await begin(bash('echo early; sleep 60'), stop.signal)
    const seen: ExecuteEvent[] = []
    for await (const event of events) {
      seen.push(event)
      if (event.kind === 'output') stop.abort()
    }
    expect(seen.at(-1)).toMatchObject({ kind: 'ended', result: { ending: { kind: 'cancelled' } } })
    expect(await endingOf(runId)).toEqual({ kind: 'cancelled' })
  })

  it('is cancelled also when its caller aborted before the start', async () => {
    const seen = await all(execute(bash('sleep 60'), AbortSignal.abort()))
    expect(seen.at(-1)).toMatchObject({ kind: 'ended', result: { ending: { kind: 'cancelled' } } })
  })

  it('continues without a reader when it is detached, and its row gets its ending', async () => {
    const { runId, events } = await begin(bash('sleep 1; exit 5'))
    await events.return()
    expect(await endingOf(runId)).toBeNull()
    await vi.waitFor(async () => expect(await endingOf(runId)).toEqual({ kind: 'exited', code: 5 }), 10_000)
  })

  it('is cancelled without a reader when it is not detached', async () => {
    const { runId, events } = await begin(bash('sleep 60', { detached: false }))
    await events.return()
    await vi.waitFor(async () => expect(await endingOf(runId)).toEqual({ kind: 'cancelled' }), 10_000)
  })

  it('is closed when the database fails after its row was written', async () => {
    const { get } = opened.store.keys
    opened.store.keys.get = () => Promise.reject(new Error('the disk is gone'))
    await expect(all(execute(bash('true')))).rejects.toThrow('the disk is gone')
    opened.store.keys.get = get
    expect(await opened.store.runs.unfinished()).toEqual([])
    expect(await all(execute(bash('true')))).toHaveLength(3)
  })

  it('is rejected when the queue is full, and leaves no row without an ending', async () => {
    opened.runner.maxRuns = 0
    await expect(all(execute(bash('true')))).rejects.toMatchObject({ code: 'queue_full' })
    expect(await opened.store.runs.unfinished()).toEqual([])
  })

  it('is rejected without a row while no run can start', async () => {
    opened.runner.readiness = { ready: false, reason: 'the runner is being restarted' }
    await expect(all(execute(bash('true')))).rejects.toThrow('the runner is being restarted')
    expect(opened.core.readiness).toMatchObject({ ready: false })
  })

  it('ends as lost when its runner dies, with the limits it had', async () => {
    const { runId, events } = await begin(bash('sleep 60'))
    opened.runner.die()
    expect((await all(events)).at(-1)).toMatchObject({
      kind: 'ended',
      result: { ending: { kind: 'failed', reason: 'runner_lost' }, limits: { timeoutMs: 10_000 } },
    })
    expect(await endingOf(runId)).toEqual({ kind: 'failed', reason: 'runner_lost' })
  })
})

describe('cancelling by id', () => {
  it('ends a run of the same organization', async () => {
    const { runId, events } = await begin(bash('sleep 60'))
    await opened.core.cancel(opened.caller, runId)
    expect((await all(events)).at(-1)).toMatchObject({ result: { ending: { kind: 'cancelled' } } })
    await expect(opened.core.cancel(opened.caller, runId)).rejects.toMatchObject({ code: 'run_finished' })
  })

  it('treats a run of another organization like one that never existed', async () => {
    const { runId, events } = await begin(bash('sleep 1'))
    const stranger: Caller = { ...opened.caller, orgId: 'org_other' }
    for (const id of [runId, 'trc_none']) {
      await expect(opened.core.cancel(stranger, id)).rejects.toMatchObject({
        code: 'run_unknown',
        message: `The run ${id} does not exist.`,
      })
    }
    expect((await all(events)).at(-1)).toMatchObject({ result: { ending: { kind: 'exited', code: 0 } } })
  })
})

describe('a run of an earlier front', () => {
  const nextFront = () => createCore({ ...opened, profiles: [testProfile], ...coreSettings })

  it('is followed to its end when the runner still has it', async () => {
    const { runId, events } = await begin(bash('sleep 1; exit 6'))
    const next = await nextFront()
    await vi.waitFor(async () => expect(await endingOf(runId)).toEqual({ kind: 'exited', code: 6 }), 10_000)
    await next.close('leave', 0)
    await events.return()
  })

  it('is cancelled when no client can request its result any more', async () => {
    const { runId, events } = await begin(bash('sleep 60', { detached: false }))
    const next = await nextFront()
    await vi.waitFor(async () => expect(await endingOf(runId)).toEqual({ kind: 'cancelled' }), 10_000)
    await next.close('leave', 0)
    await events.return()
  })

  it('is closed as interrupted when the runner does not have it', async () => {
    const { runId, events } = await begin(bash('sleep 60'))
    opened.runner.attach = async function* () {
      // The earlier front receives no more events of it.
    }
    opened.runner.die()
    const next = await nextFront()
    expect(await endingOf(runId)).toEqual({ kind: 'failed', reason: 'interrupted' })
    await next.close('leave', 0)
    await events.return()
  })

  it('is recovered again after every runner restart, and until then the server is not ready', async () => {
    const row = { id: 'trc_left', orgId: 'org_dev', keyId: 'key_dev', profile: 'default', profileRevision: 'rev_test' }
    await opened.store.runs.begin({
      ...row,
      language: 'bash',
      codeHash: '',
      codeBytes: 1,
      metadata: null,
      subject: null,
      envNames: '[]',
      runnerId: 'rnr_test',
      epoch: 1,
      detached: true,
      kept: false,
      keepsOutput: false,
      threadId: null,
      deliveryMode: 'inline',
      createdAt: '2026-01-01T00:00:00.000Z',
    })
    expect(await endingOf('trc_left')).toBeNull()
    expect(opened.core.readiness).toEqual({ ready: true })
    opened.runner.die()
    expect(opened.core.readiness).toEqual({ ready: false, reason: 'runs of before the restart are being recovered' })
    await vi.waitFor(() => expect(opened.core.readiness).toEqual({ ready: true }), 10_000)
    expect(await endingOf('trc_left')).toEqual({ kind: 'failed', reason: 'interrupted' })
  })

  it('is ended and acknowledged by the runner when the row already has its ending', async () => {
    const { runId, events } = await begin(bash('sleep 60'))
    await opened.store.runs.finish(runId, '2026-01-01T00:00:00.000Z', { kind: 'failed', reason: 'interrupted' }, null)
    const next = await nextFront()
    await vi.waitFor(() => expect(opened.runner.acknowledged).toContain(runId), 10_000)
    await next.close('leave', 0)
    await events.return()
  })
})

describe('shutting down', () => {
  it('lets runs finish within the grace period', async () => {
    const { runId, events } = await begin(bash('sleep 0.2; exit 4'))
    const reading = all(events)
    await opened.core.close('shutdown', 10_000)
    await reading
    expect(await endingOf(runId)).toEqual({ kind: 'exited', code: 4 })
  })

  it('ends the remaining runs, and rejects new ones', async () => {
    const { runId, events } = await begin(bash('sleep 60'))
    const reading = all(events)
    await opened.core.close('shutdown', 0)
    await reading
    expect(await endingOf(runId)).toEqual({ kind: 'shutdown' })
    await expect(all(execute(bash('true')))).rejects.toThrow('shutting down')
  })
})

describe('the rows of profiles', () => {
  it('contain the names of variables and not their values', async () => {
    const row = await opened.store.profiles.get('default', 'rev_test')
    expect(JSON.parse(row?.definition ?? '')).toMatchObject({ env: ['FROM_PROFILE'] })
  })
})
