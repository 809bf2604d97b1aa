import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { beforeAll, describe, expect, it } from 'vitest'
import { killIfThere, until } from '../support/glovebox.ts'
import { openStory } from '../support/story.ts'

const story = openStory()

/** The test says what it has. */
type Json = ReturnType<typeof JSON.parse>

const send = (method: string, path: string, body?: unknown, accept = 'application/json') =>
  fetch(`${story.url}/v1/sandboxes${path}`, {
    method,
    headers: { accept, ...(method === 'POST' && { 'content-type': 'application/json' }) },
    ...(method === 'POST' && { body: JSON.stringify(body ?? {}) }),
  })

async function call(method: string, path: string, body?: unknown): Promise<{ status: number; body: Json }> {
  const response = await send(method, path, body)
  const text = await response.text()
  return { status: response.status, body: text === '' ? null : JSON.parse(text) }
}

const run = async (code: string, more: object = {}): Promise<Json> =>
  (await call('POST', '/code/code', { language: 'python', code, ...more })).body

const glovebox = fileURLToPath(new URL('../../bin/glovebox', import.meta.url))
const cli = async (...words: string[]) =>
  (await promisify(execFile)(glovebox, words, { env: { ...process.env, GLOVEBOX_URL: story.url } })).stdout

async function mcpClient() {
  const client = new Client({ name: 'test', version: '1' })
  await client.connect(new StreamableHTTPClientTransport(new URL(`${story.url}/mcp?toolsets=sandbox`)) as never)
  const ask = (name: string, args: object): Promise<string> =>
    client.callTool({ name, arguments: { sandbox: 'code', ...args } }).then(
      ({ content }) => (content as { text: string }[])[0]?.text ?? '',
      (error: Error) => error.message,
    )
  return { client, ask }
}

beforeAll(async () => {
  expect((await call('POST', '', { name: 'code', on_crash: 'restart' })).status).toBe(201)
})

describe('code of a sandbox over REST', () => {
  it('keeps its variables, and returns output and values apart', async () => {
    expect(await run('x = 41; print("said")')).toMatchObject({
      ...{ ending: { kind: 'completed' }, state: 'kept', lost_before: null, stdout: 'said\n', displays: [] },
    })
    expect(await run('x + 1')).toMatchObject({
      stdout: '',
      displays: [{ is_result: true, data: { 'text/plain': '42' } }],
    })
    expect(await run('1 / 0')).toMatchObject({ ending: { kind: 'raised', name: 'ZeroDivisionError' }, stderr: '' })
    expect(await run('export Y=7; false', { language: 'bash' })).toMatchObject({
      ending: { kind: 'completed', exit_code: 1 },
    })
    expect((await run('echo $Y', { language: 'bash' })).stdout).toBe('7\n')
    expect(await run('input()', { stdin: 'given\n' })).toMatchObject({
      displays: [{ data: { 'text/plain': "'given'" } }],
    })
  })

  it('streams what it writes and displays while it runs', async () => {
    const code = 'print("first", flush=True)\ndisplay(5)\n"last"'
    const response = await send('POST', '/code/code', { language: 'python', code }, 'application/x-ndjson')
    expect(response.headers.get('content-type')).toBe('application/x-ndjson')
    const lines = (await response.text()).trim().split('\n')
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { type: 'stdout', data: 'first\n' },
      { type: 'display', is_result: false, data: { 'text/plain': '5' } },
      { type: 'display', is_result: true, data: { 'text/plain': "'last'" } },
      { type: 'ended', ending: { kind: 'completed' }, state: 'kept' },
    ])
  })

  it('is refused with the field that is wrong', async () => {
    for (const [body, code] of [
      [{ language: 'cobol', code: 'x' }, 'invalid_argument'],
      [{ language: 'python', code: '' }, 'code_empty'],
      [{ language: 'python', code: 'x', context: 'none' }, 'context_unknown'],
      [{ language: 'bash', code: 'x', context: 'python' }, 'context_language'],
      [{ language: 'python', code: 'x', timeout: 1e6 }, 'timeout_too_long'],
    ] as const)
      expect((await call('POST', '/code/code', body)).body.code).toBe(code)
    expect((await call('POST', '/code/contexts', { language: 'bash', rewind: 2 })).body.message).toContain('rewind')
    expect((await call('POST', '/code/contexts', { language: 'python', cwd: 'here' })).body.message).toContain('cwd')
  })

  it('is undone with its files by every API', async () => {
    const body = { language: 'python', rewind: 4, rewind_files: true }
    const { id: context, rewind_files } = (await call('POST', '/code/contexts', body)).body
    expect(rewind_files).toBe(true)
    for (const n of [1, 2, 3, 4]) await run(`n = ${n}; open("n", "w").write(str(n))`, { context })
    const undo = { calls: 1, files: true }
    expect((await call('POST', `/code/contexts/${context}/rewind`, undo)).body).toEqual({
      ...{ calls: 1, not_rewound: [], files: { restored: 1, removed: 0 } },
    })
    const { client, ask } = await mcpClient()
    expect(await ask('sandbox_rewind', { ...undo, context })).toContain('Files: 1 put back, 0 removed')
    await client.close()
    const undone = await cli('sandbox', 'rewind', 'code', '--context', context, '--files')
    expect(undone).toBe('Undid 1 call.\nFiles: 1 put back, 0 removed.\n')
    const listed = await cli('sandbox', 'contexts', 'code')
    expect(listed).toMatch(/ctx_\S+ +python +idle +1 calls with files/)
    expect(await run('n, open("n").read()', { context })).toMatchObject({
      displays: [{ data: { 'text/plain': "(1, '1')" } }],
    })
    expect((await call('DELETE', `/code/contexts/${context}`)).status).toBe(204)
  })

  it('runs in contexts of its own, which are listed, rewound, restarted and deleted', async () => {
    const created = await call('POST', '/code/contexts', { language: 'python', cwd: '/tmp', rewind: 3 })
    expect(created).toMatchObject({ status: 201, body: { language: 'python', cwd: '/tmp', state: 'idle' } })
    const { id: context } = created.body
    for (const code of ['import os; n = 1', 'n = 2', 'n = 3']) await run(code, { context })
    expect(await run('n, os.getcwd()', { context })).toMatchObject({
      displays: [{ data: { 'text/plain': "(3, '/tmp')" } }],
    })
    const at = `/code/contexts/${context}`
    expect((await call('POST', `${at}/rewind`, { calls: 2 })).body).toMatchObject({ calls: 2, not_rewound: [] })
    expect(await run('n', { context })).toMatchObject({ displays: [{ data: { 'text/plain': '2' } }] })
    expect((await call('POST', `${at}/rewind`, { calls: 2, files: true })).body.code).toBe('rewind_unavailable')
    expect((await call('POST', `${at}/interrupt`)).body).toEqual({ interrupted: false })
    const ids = (await call('GET', '/code/contexts')).body.data.map(({ id }: Json) => id)
    expect(ids).toEqual(expect.arrayContaining(['python', 'bash', context]))
    expect((await call('POST', `${at}/restart`)).status).toBe(204)
    expect(await run('n', { context })).toMatchObject({
      ending: { kind: 'raised', name: 'NameError' },
      lost_before: null,
    })
    expect((await call('DELETE', at)).status).toBe(204)
    expect((await call('DELETE', at)).body.code).toBe('context_unknown')
  })
})

describe('the tools of the toolset sandbox', () => {
  it('read and write files, and manage contexts', async () => {
    const { client, ask } = await mcpClient()
    const write = (args: object) => ask('sandbox_files_write', args)
    const read = (args: object) => ask('sandbox_files_read', args)
    expect(await write({ action: 'write', path: 'm/a.sh', content: 'ä1', mode: '755' })).toBe(
      'Wrote 3 bytes to m/a.sh.',
    )
    expect(await write({ action: 'append', path: 'm/a.sh', content: '2' })).toBe('Wrote 1 bytes to m/a.sh.')
    expect(await read({ action: 'read', path: 'm/a.sh' })).toBe('ä12')
    expect(await read({ action: 'read', path: 'm/a.sh', offset: 2 })).toBe('12')
    expect(await write({ action: 'copy', path: 'm/a.sh', to: 'm/b.sh' })).toBe('Copied m/a.sh to m/b.sh.')
    expect(await write({ action: 'move', path: 'm/a.sh', to: 'm/b.sh' })).toContain('m/b.sh already exists')
    expect(await write({ action: 'move', path: 'm/a.sh' })).toContain('to is required')
    expect(await write({ action: 'mkdir', path: 'm/dir' })).toBe('Created m/dir.')
    expect(await read({ action: 'list', path: 'm' })).toMatch(
      /^a.sh file, 4 bytes, mode 0755\nb.sh .*\ndir\/ directory/,
    )
    expect(await read({ action: 'stat', path: 'm/none' })).toContain('does not exist')
    expect(await write({ action: 'delete', path: 'm' })).toContain('not empty')
    expect(await write({ action: 'delete', path: 'm', recursive: true })).toBe('Deleted m.')

    const created = await ask('sandbox_contexts', { action: 'create', language: 'python', rewind: 2 })
    const [, context = ''] = /context (\S+): python, idle/.exec(created) ?? []
    for (const code of ['n = 1', 'n = 2']) await ask('sandbox_run_code', { language: 'python', code, context })
    expect(await ask('sandbox_contexts', { action: 'list' })).toContain(
      `${context}: python, idle, 2 calls can be undone`,
    )
    expect(await ask('sandbox_rewind', { calls: 1, context })).toBe('Undid 1 calls.')
    expect(await ask('sandbox_run_code', { language: 'python', code: 'n', context })).toBe('1\n')
    expect(await ask('sandbox_contexts', { action: 'restart' })).toContain('context is required')
    expect(await ask('sandbox_contexts', { action: 'delete', context })).toBe(`Deleted context ${context}.`)
    await client.close()
  })
})

describe('the variables of code', () => {
  it('are kept when a time limit, its client or another call interrupts it', async () => {
    await run('kept = 1')
    expect(await run('while True: pass', { timeout: 0.2 })).toMatchObject({
      ending: { kind: 'timed_out' },
      state: 'kept',
    })
    // A loop in C that looks for signals.
    expect(await run(`import re; re.match("(a+)+$", "a" * 60 + "b")`, { timeout: 0.2 })).toMatchObject({
      ending: { kind: 'timed_out' },
    })
    const leaving = new AbortController()
    const left = fetch(`${story.url}/v1/sandboxes/code/code`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/x-ndjson' },
      body: JSON.stringify({ language: 'python', code: 'kept += 1\nprint("in", flush=True)\nwhile True: pass' }),
      signal: leaving.signal,
    })
    await (await left).body!.getReader().read()
    leaving.abort()
    expect(await run('exit(3)')).toMatchObject({ ending: { kind: 'exited', code: 3 }, state: 'kept' })
    expect(await run('kept')).toMatchObject({ displays: [{ data: { 'text/plain': '2' } }], lost_before: null })
  })

  it.each([
    ['crashes', 'import os; os.kill(os.getpid(), 11)', { kind: 'kernel_ended' }],
    [
      'is killed since it does not stop',
      'import signal; signal.pthread_sigmask(0, [2])\nwhile True: pass',
      { kind: 'timed_out' },
    ],
  ])('are lost when the interpreter %s, which this answer and the next one say', async (_, code, ending) => {
    await run('gone = 1')
    expect(await run(code, { timeout: 0.5 })).toMatchObject({ ending, state: 'lost' })
    const next = await run('gone')
    expect(next).toMatchObject({ ending: { kind: 'raised', name: 'NameError' }, lost_before: expect.any(String) })
    expect(await run('1')).toMatchObject({ lost_before: null })
  })

  it.each([
    ['python', 'import os; os.kill(os.getpid(), 9)'],
    ['nodejs', 'process.kill(process.pid, 9)'],
    ['bash', 'kill -9 $$'],
  ])('are lost when the interpreter of %s is killed, which both answers of each API say', async (language, code) => {
    const rpc = async (text: string) => {
      const params = { sandbox: 'code', language, code: text }
      const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'sandbox.repl.run', params })
      const answer = await fetch(`${story.url}/api/v1/rpc`, {
        ...{ method: 'POST', headers: { 'content-type': 'application/json' }, body },
      })
      return JSON.stringify(await answer.json())
    }
    const { client, ask } = await mcpClient()
    const tool = (text: string) => ask('sandbox_run_code', { language, code: text })
    for (const runBy of [rpc, tool]) {
      expect(await runBy(code)).toMatch(/was ended by the signal KILL.*Its variables are lost/s)
      expect(await runBy('1')).toContain(
        'The variables of earlier calls were lost: the interpreter was ended by signal KILL',
      )
      expect(await runBy('1')).not.toContain('lost')
    }
    await client.close()
    const ofRest = { language: language === 'nodejs' ? 'node' : language }
    await run(code, ofRest)
    expect(await run('1', ofRest)).toMatchObject({ lost_before: 'the interpreter was ended by signal KILL' })
  })

  it('are kept with 100 MB of output, of which the beginning and the end are returned', async () => {
    await run('big = 1')
    const { stdout, omitted_bytes, state } = await run(
      'import sys\nfor _ in range(100): sys.stdout.write("y" * 999_999 + "\\n")\nprint("end")',
    )
    expect(state).toBe('kept')
    expect(stdout.endsWith('end\n')).toBe(true)
    expect(omitted_bytes).toBeGreaterThan(90_000_000)
    expect(await run('big')).toMatchObject({ displays: [{ data: { 'text/plain': '1' } }] })
  })

  it('survive the front that is killed, and not the runner, whose next answer begins anew', async () => {
    await run('front = 1')
    const { frontPid } = story.server
    killIfThere(frontPid)
    await until(async () => isNextFront(frontPid), 'the next front is ready')
    expect(await run('front + 1')).toMatchObject({ displays: [{ data: { 'text/plain': '2' } }], lost_before: null })

    killIfThere(story.server.runnerPid)
    let next: Json
    await until(async () => {
      next = await run('front')
      return next.ending?.kind === 'raised'
    }, 'the sandbox was started again')
    expect(next.lost_before).toMatch(/^the sandbox crashed \(/)
    expect(await run('1')).toMatchObject({ lost_before: null })
    expect((await call('GET', '/code')).body).toMatchObject({ state: 'running', restarts: 1 })
    expect((await call('DELETE', '/code')).status).toBe(204)
    expect((await call('POST', '/code/code', { language: 'python', code: '1' })).body.code).toBe('sandbox_unknown')
  })
})

async function isNextFront(killedPid: number): Promise<boolean> {
  try {
    return story.server.frontPid !== killedPid && (await call('GET', '/code')).body.state === 'running'
  } catch {
    return false
  }
}
