import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { runProgram } from '../../src/cli/program.ts'
import { withCommandIo } from '../support/command-io.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

let front: Front
let closed: Front
beforeAll(async () => {
  front = await openFront(threadsProfile)
  closed = await openFront(threadsProfile, { dev: false })
})
afterAll(async () => {
  await front.close()
  await closed.close()
})

type More = Parameters<typeof withCommandIo>[1]

async function glovebox(words: string[], { env, ...more }: More = {}) {
  const io = { env: { GLOVEBOX_URL: front.url, ...env }, ...more }
  const outcome = await withCommandIo((surroundings) => runProgram(words, surroundings), io)
  return { ...outcome, stdout: outcome.stdout.toString('latin1') }
}

const execute = async (code: string, more: object = {}): Promise<string> => {
  const response = await front.post('/v1/sandbox/execute', { language: 'bash', code, ...more })
  return ((await response.json()) as { trace_id: string }).trace_id
}

/** Starts a run that prints a line and then waits. @returns its id, and its answer, which arrives at its end. */
async function start(code = 'echo early; sleep 60'): Promise<{ id: string; ended: Promise<unknown> }> {
  const headers = { accept: 'application/x-ndjson' }
  const { body } = await front.post('/v1/sandbox/execute', { language: 'bash', code }, headers)
  const reader = body!.pipeThrough(new TextDecoderStream()).getReader()
  const { value = '' } = await reader.read()
  const ended = (async () => {
    while (!(await reader.read()).done);
  })()
  return { id: (JSON.parse(value.split('\n')[0]!) as { trace_id: string }).trace_id, ended }
}

describe('glovebox runs', () => {
  it('lists runs, newest first, as a table or JSON', async () => {
    const first = await execute('exit 3', { thread_id: 'listed' })
    const second = await execute('true', { thread_id: 'listed' })
    const { stdout } = await glovebox(['runs', 'ls', '--thread', 'listed'])
    expect(stdout.split('\n').map((line) => line.split(/ +/).slice(0, 3))).toEqual([
      ['RUN', 'STATUS', 'EXIT'],
      [second, 'success', '0'],
      [first, 'failed', '3'],
      [''],
    ])
    const listed = await glovebox(['runs', 'ls', '--thread', 'listed', '--status', 'failed', '--json'])
    expect(JSON.parse(listed.stdout)).toMatchObject([{ trace_id: first, exit_code: 3 }])
    expect((await glovebox(['runs', 'ls', '--status', 'odd'])).code).toBe(70)
  })

  it('shows one run', async () => {
    const id = await execute('exit 3', { thread_id: 'shown', metadata: { team: 'a' } })
    const { stdout } = await glovebox(['runs', 'show', id])
    expect(stdout).toMatch(new RegExp(`^run +${id}\nstatus +failed\nexit code +3\nerror +exited with code 3\n`))
    expect(stdout).toMatch(/thread +shown\n[\s\S]*metadata +\{"team":"a"\}/)
    expect(JSON.parse((await glovebox(['runs', 'show', id, '--json'])).stdout)).toMatchObject({ trace_id: id })
    expect(await glovebox(['runs', 'show', 'trc_none'])).toMatchObject({ code: 70, stdout: '' })
  })

  it('colors states and escapes text on a terminal only', async () => {
    const id = await execute('exit 3', { metadata: { note: '\u009b2J' } })
    const { stdout } = await glovebox(['runs', 'show', id], { terminals: ['stdout'] })
    expect(stdout).toContain('\x1b[31mfailed\x1b[39m')
    expect(stdout).toContain('{"note":"\\x9b2J"}')
    const json = (await glovebox(['runs', 'show', id, '--json'])).stdout
    expect(json).toContain('"note": "\\u009b2J"')
  })

  it('prints the output of a run that has ended, byte for byte', async () => {
    const id = await execute(String.raw`printf 'a\0\377\n'; echo err >&2; kill -9 $$`)
    const { code, stdout, stderr } = await glovebox(['runs', 'logs', id])
    expect([code, stdout, stderr]).toEqual([0, 'a\0\xff\n', 'err\nglovebox runs logs: ended by signal SIGKILL\n'])
    const lines = (await glovebox(['runs', 'logs', id, '--json'])).stdout.trim().split('\n')
    expect(lines.map((line) => (JSON.parse(line) as { type: string }).type)).toContain('result')
  })

  it('prints the output so far, follows it to the end, and cancels the run', async () => {
    const { id, ended } = await start()
    await vi.waitFor(async () => expect((await glovebox(['runs', 'logs', id])).stdout).toBe('early\n'))
    const cancelled: Promise<{ code: number; stdout: string }>[] = []
    const onStdout = () => cancelled.push(glovebox(['runs', 'cancel', id]))
    const followed = await glovebox(['runs', 'logs', '-f', id], { onStdout })
    expect(followed).toMatchObject({ code: 0, stdout: 'early\n', stderr: 'glovebox runs logs: cancelled\n' })
    expect(await cancelled[0]).toMatchObject({ code: 0, stdout: `Cancelling ${id}.\n` })
    await ended
    expect(await glovebox(['runs', 'cancel', id])).toMatchObject({ code: 75 })
  })

  it('stops to follow on Ctrl-C, and leaves the run alone', async () => {
    const { id, ended } = await start()
    const stop = new AbortController()
    const { code } = await glovebox(['runs', 'logs', '-f', id], {
      stop: stop.signal,
      onStdout: () => stop.abort('SIGINT'),
    })
    expect(code).toBe(130)
    expect(JSON.parse((await glovebox(['runs', 'show', id, '--json'])).stdout)).toMatchObject({ status: 'running' })
    await glovebox(['runs', 'cancel', id])
    await ended
  })
})

describe('glovebox threads', () => {
  it('lists, copies and deletes threads', async () => {
    await execute('echo kept >file', { thread_id: 'one' })
    expect(await glovebox(['threads', 'fork', 'one', 'two'])).toMatchObject({ code: 0, stdout: 'two\n' })
    expect((await glovebox(['ls', '--thread', 'two'])).stdout).toBe('file\n')
    expect((await glovebox(['threads', 'ls'])).stdout).toMatch(/^THREAD +BYTES[\s\S]*\none +\d+ .* idle\n/)
    const ids = JSON.parse((await glovebox(['threads', 'ls', '--json'])).stdout) as { id: string }[]
    expect(ids.map(({ id }) => id)).toEqual(expect.arrayContaining(['one', 'two']))
    expect(await glovebox(['threads', 'fork', 'one', 'two'])).toMatchObject({ code: 75 })
    expect(await glovebox(['threads', 'rm', 'one', 'two'])).toMatchObject({
      code: 0,
      stdout: 'Deleted one.\nDeleted two.\n',
    })
    expect(await glovebox(['threads', 'rm', 'one'])).toMatchObject({ code: 70 })
  })

  it.each(['..', '.', 'a/b', '../executions'])('do not take %j for another path', async (id) => {
    expect(await glovebox(['threads', 'rm', id])).toMatchObject({ code: 70, stdout: '' })
  })
})

describe('glovebox status', () => {
  it('prints whether runs can start, and what there is', async () => {
    await execute('true', { thread_id: 'counted' })
    const { code, stdout } = await glovebox(['status'])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^server +http:.*\nversion +0\.0\.0-test\nstate +ready\naccess +no key required\n/)
    const { threads } = JSON.parse((await glovebox(['status', '--json'])).stdout) as { threads: number }
    expect(threads).toBeGreaterThan(0)
  })

  it('exits with what prevents runs', async () => {
    front.runner.readiness = { ready: false, reason: 'starting' }
    const waiting = await glovebox(['status'])
    front.runner.readiness = { ready: true }
    expect([waiting.code, waiting.stdout]).toEqual([69, expect.stringContaining('not ready: starting')])
    expect(await glovebox(['status', '--url', 'http://127.0.0.1:1'])).toMatchObject({ code: 69 })
    const locked = await glovebox(['status', '--url', closed.url])
    expect([locked.code, locked.stdout]).toEqual([77, expect.stringContaining('key required')])
    const wrong = await glovebox(['status', '--url', closed.url], { env: { GLOVEBOX_KEY: 'sk-us-wrong' } })
    expect([wrong.code, wrong.stdout]).toEqual([77, expect.stringContaining('key refused')])
  })
})
