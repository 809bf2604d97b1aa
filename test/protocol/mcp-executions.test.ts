import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createCore } from '../../src/core/core.ts'
import { coreSettings, type Front, openFront, testProfile } from '../support/front.ts'

const profile = { ...testProfile, calls: { ...testProfile.calls, detachAfterMs: 400 } }

let front: Front
beforeAll(async () => {
  front = await openFront(profile)
})
afterAll(async () => {
  await front.close()
})

interface Result {
  content: { text: string }[]
  isError: boolean
  structuredContent: {
    status: string
    stdout: string
    trace_id: string
    cursor: string
    exit_code: number | null
    ending?: { kind: string; reason?: string }
  }
}

async function callTool(name: string, args: object, id = 1) {
  const body = { jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } }
  const response = await front.post('/mcp', body, { 'mcp-protocol-version': '2025-11-25' })
  return (await response.json()) as { result?: Result; error?: { code: number; message: string } }
}

async function result(name: string, args: object): Promise<Result> {
  const { result: answered, error } = await callTool(name, args)
  if (!answered) throw new Error(error?.message)
  return answered
}

const execute = (code: string, more: object = {}) => result('sandbox_execute', { code, language: 'bash', ...more })

describe('a run that exceeds the waiting time of its profile', () => {
  it('returns its output so far and how to follow it', async () => {
    const early = await execute('echo first; sleep 1; echo second; exit 3')
    expect(early.isError).toBe(false)
    expect(early.structuredContent).toMatchObject({ status: 'running', stdout: 'first\n', exit_code: null })
    const { trace_id, cursor } = early.structuredContent
    for (const words of ['## Still running', 'execution_wait', trace_id, cursor]) {
      expect(early.content[0]?.text).toContain(words)
    }
    const late = await result('execution_wait', { trace_id, cursor, timeout: 10 })
    expect(late.structuredContent).toMatchObject({ status: 'failed', stdout: 'second\n', exit_code: 3 })
    expect(late.isError).toBe(true)
    const again = await result('execution_get', { trace_id })
    expect(again.structuredContent).toMatchObject({ status: 'failed', stdout: 'first\nsecond\n' })
  })

  it('does not suggest the follow-up tools when the profile does not allow them', async () => {
    const calls = { ...profile.calls, toolsets: ['execute'] as const }
    const own = await openFront({ ...profile, calls })
    const params = { name: 'sandbox_execute', arguments: { code: 'echo first; sleep 2', language: 'bash' } }
    const body = (await (await own.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params })).json()) as {
      result: Result
    }
    expect(body.result.content[0]?.text).toContain('first\n')
    expect(body.result.content[0]?.text).toContain('later output cannot be fetched')
    expect(body.result.content[0]?.text).not.toContain('execution_')
    await own.close()
  })

  it('does not suggest a follow-up tool that the organization has disabled', async () => {
    const own = await openFront(profile)
    await own.store.hiddenTools.hide('org_dev', 'execution_wait')
    const ask = async (method: string, params: object = {}) => {
      const response = await own.post('/mcp', { jsonrpc: '2.0', id: 1, method, params })
      return ((await response.json()) as { result: Result & { tools: { name: string; description: string }[] } }).result
    }
    const call = { name: 'sandbox_execute', arguments: { code: 'echo first; sleep 2', language: 'bash' } }
    const said = (await ask('tools/call', call)).content[0]?.text
    expect(said).toContain('execution_get returns')
    expect(said).toContain('execution_cancel stops')
    expect(said).not.toContain('execution_wait')
    expect(JSON.stringify(await ask('tools/list'))).not.toContain('execution_wait')
    await own.close()
  })

  it('can be read while it executes, and be cancelled', async () => {
    const { structuredContent: early } = await execute('echo one; sleep 0.6; echo two; sleep 60')
    const { trace_id } = early
    await vi.waitFor(async () => {
      const { structuredContent } = await result('execution_get', { trace_id, cursor: early.cursor })
      expect(structuredContent).toMatchObject({ status: 'running', stdout: 'two\n' })
    }, 5_000)
    const waited = await result('execution_wait', { trace_id, timeout: 1 })
    expect(waited.structuredContent.status).toBe('running')
    const stopped = await result('execution_cancel', { trace_id })
    expect(stopped.structuredContent).toMatchObject({ status: 'cancelled', ending: { kind: 'cancelled' } })
    expect(stopped.structuredContent.stdout).toBe('one\ntwo\n')
    expect((await callTool('execution_cancel', { trace_id })).error?.message).toContain('has already ended')
  })

  it('can be read also while it prints without a pause', async () => {
    const { structuredContent: early } = await execute('while :; do echo on; sleep 0.01; done')
    const { trace_id } = early
    const looked = await result('execution_get', { trace_id, cursor: early.cursor })
    expect(looked.structuredContent).toMatchObject({ status: 'running', stdout: expect.stringMatching(/^(on\n)+$/) })
    await result('execution_cancel', { trace_id })
  })

  it('rejects a cursor in the middle of a character', async () => {
    const { structuredContent: early } = await execute("printf '\\xc3'; sleep 1; printf '\\xa4!'")
    expect(early).toMatchObject({ stdout: '', cursor: '0.0' })
    const late = await result('execution_wait', { trace_id: early.trace_id, cursor: early.cursor })
    expect(late.structuredContent.stdout).toBe('ä!')
  })

  it('returns its result normally when it ends in time', async () => {
    expect((await execute('echo quick')).structuredContent).toMatchObject({ status: 'success', exit_code: 0 })
  })
})

describe('the execution tools', () => {
  it('are listed where runs can detach, and for clients that select them', async () => {
    const list = async (path: string) => {
      const response = await front.post(path, { jsonrpc: '2.0', id: 1, method: 'tools/list' })
      return ((await response.json()) as { result: { tools: { name: string }[] } }).result.tools.map(({ name }) => name)
    }
    const executions = ['execution_get', 'execution_wait', 'execution_cancel']
    expect(await list('/mcp')).toEqual(expect.arrayContaining(executions))
    expect(await list('/mcp?toolsets=executions')).toEqual(executions)
  })

  it('reject unknown runs and invalid cursors', async () => {
    expect((await callTool('execution_get', { trace_id: 'trc_nothing' })).error?.message).toContain(
      'The run trc_nothing does not exist',
    )
    const { structuredContent } = await execute('true')
    const wrong = await result('execution_get', { trace_id: structuredContent.trace_id, cursor: '-1' })
    expect(wrong).toMatchObject({ isError: true, content: [{ text: expect.stringContaining('cursor') }] })
  })
})

describe('an idempotency key', () => {
  const marked = (key: string, code: string, more: object = {}) => execute(code, { idempotency_key: key, ...more })

  it('returns the first result for a repeated call, and executes nothing again', async () => {
    const first = await marked('a', 'echo $RANDOM$RANDOM; exit 2')
    const second = await marked('a', 'echo $RANDOM$RANDOM; exit 2')
    expect(second.structuredContent).toEqual(first.structuredContent)
    expect(second.content).toEqual(first.content)
    expect(first.structuredContent.exit_code).toBe(2)
  })

  it('joins repeated calls to the run while it executes', async () => {
    const code = 'echo $RANDOM$RANDOM; sleep 0.2'
    const all = await Promise.all([1, 2, 3, 4].map(() => marked('b', code)))
    expect(new Set(all.map(({ structuredContent }) => structuredContent.stdout)).size).toBe(1)
    expect(new Set(all.map(({ structuredContent }) => structuredContent.trace_id)).size).toBe(1)
  })

  it('is rejected with different arguments', async () => {
    await marked('c', 'echo one')
    const body = { code: 'echo two', language: 'bash', idempotency_key: 'c' }
    expect((await callTool('sandbox_execute', body)).error?.message).toContain('already used with different arguments')
    const otherTime = { code: 'echo one', language: 'bash', timeout: 5, idempotency_key: 'c' }
    expect((await callTool('sandbox_execute', otherTime)).error?.message).toContain('already used')
  })

  it('returns an interrupted result after the runner died, and executes nothing', async () => {
    const own = await openFront(testProfile)
    const body = (id: number) => ({
      jsonrpc: '2.0',
      id,
      method: 'tools/call',
      params: { name: 'sandbox_execute', arguments: { code: 'sleep 60', language: 'bash', idempotency_key: 'd' } },
    })
    const lost = own.post('/mcp', body(1))
    await vi.waitFor(async () => expect(await own.runner.list()).toHaveLength(1))
    await own.core.close('leave', 0)
    own.runner.die()
    await lost
    const next = await createCore({ ...own, profiles: [testProfile], ...coreSettings })
    const events = next.execute(
      own.caller,
      { code: 'sleep 60', language: 'bash', idempotencyKey: 'd', detached: true },
      new AbortController().signal,
    )
    const seen = []
    for await (const event of events) seen.push(event)
    expect(seen.at(-1)).toMatchObject({ kind: 'recorded', result: { ending: { kind: 'failed' } } })
    expect(own.runner.specs.size).toBe(1)
    await next.close('leave', 0)
    await own.close()
  })

  it('can be used again when the runner rejected the first call', async () => {
    front.runner.maxRuns = 0
    const refused = await callTool('sandbox_execute', { code: 'echo x', language: 'bash', idempotency_key: 'e' })
    front.runner.maxRuns = 32
    expect(refused.error?.code).toBe(-32000)
    expect((await marked('e', 'echo x')).structuredContent).toMatchObject({ stdout: 'x\n', exit_code: 0 })
  })

  it('is validated', async () => {
    for (const key of ['a b', 'ä', 'x'.repeat(129)]) {
      const answered = await result('sandbox_execute', { code: 'echo x', language: 'bash', idempotency_key: key })
      expect(answered).toMatchObject({ isError: true, content: [{ text: expect.stringContaining('idempotency_key') }] })
    }
  })

  it('works over REST as well', async () => {
    const body = { code: 'echo $RANDOM', language: 'bash', idempotency_key: 'rest' }
    const first = (await (await front.post('/v1/sandbox/execute', body)).json()) as { stdout: string }
    const second = (await (await front.post('/v1/sandbox/execute', body)).json()) as { stdout: string }
    expect(second.stdout).toBe(first.stdout)
    const lines = await (await front.post('/v1/sandbox/execute', body, { accept: 'application/x-ndjson' })).text()
    expect(lines).toContain(JSON.stringify(first.stdout))
  })
})
