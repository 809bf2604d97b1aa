/** Cases from public bug reports about input, environment, concurrent calls and server shutdown, with our own inputs. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { type Answer, callTool, execute, executeBody, follow, post, type RpcAnswer } from '../support/calls.ts'
import { Place, program, until, within } from '../support/glovebox.ts'
import { slotsOf, tracesOf } from '../support/machine.ts'
import { openStory } from '../support/story.ts'

const story = openStory(['--no-prewarm-jails', '--runs-max', '2'])

const nothingRuns = () => slotsOf(story.place).every(({ runPids }) => runPids.length === 0)
const refused = (body: object, on = story.url) =>
  post<{ error: string; message: string }>(`${on}/v1/sandbox/execute`, body)

describe('code of any size', () => {
  // Linux limits one command-line argument to 128 KiB: https://man7.org/linux/man-pages/man2/execve.2.html
  const sizes = [131_070, 131_072, 131_073, 200_000, 500_000, 1024 * 1024]
  const printing: Record<string, (filler: string) => string> = {
    python: (filler) => `s = """${filler}"""\nprint(len(s), s[-1])`,
    node: (filler) => `const s = \`${filler}\`\nconsole.log(s.length, s.at(-1))`,
    bash: (filler) => `s='${filler}'\necho \${#s} \${s: -1}`,
  }

  it.each(['python', 'node', 'bash'])(
    'arrives whole in %s, over both doors',
    { timeout: 120_000 },
    async (language) => {
      const frame = printing[language]!
      for (const size of sizes) {
        const filler = `${'ab\n'.repeat(size / 3).slice(0, size - Buffer.byteLength(frame('')) - 1)}Z`
        const code = frame(filler)
        expect(Buffer.byteLength(code)).toBe(size)
        expect(await execute(story.url, language, code)).toMatchObject({ stdout: `${filler.length} Z\n`, exit_code: 0 })
        const { body } = await callTool(story.url, { language, code })
        expect(body.result?.structuredContent.stdout).toBe(`${filler.length} Z\n`)
      }
    },
  )

  it('is rejected above one megabyte, with the actual size and the limit', async () => {
    const answer = await refused({ language: 'bash', code: `#${'é'.repeat(524_288)}` })
    expect(answer).toMatchObject({ status: 400, body: { error: 'validation_error' } })
    expect(answer.body.message).toMatch(/1048577.*1048576/)
  })
})

describe('an environment variable of a call', () => {
  const loaders = [
    'LD_PRELOAD',
    'LD_LIBRARY_PATH',
    'LD_AUDIT',
    'NODE_OPTIONS',
    'PYTHONSTARTUP',
    'PYTHONHOME',
    'BASH_ENV',
    'ENV',
  ]
  const own = [
    'PATH',
    'HOME',
    'USER',
    'SHELL',
    'TMPDIR',
    'IFS',
    'GLIBC_TUNABLES',
    'GCONV_PATH',
    'GLOVEBOX_KEY',
    'BAPONI_X',
  ]

  it.each([...loaders, ...own])('cannot be %s, over REST or MCP', async (name) => {
    const env_vars = { [name]: '/tmp/evil.so' }
    const answer = await refused({ language: 'bash', code: 'echo ran', env_vars })
    expect(answer).toMatchObject({ status: 400, body: { error: 'validation_error' } })
    expect(answer.body.message).toContain(name)
    const { body } = await callTool(story.url, { language: 'bash', code: 'echo ran', env_vars })
    expect(body.result?.isError ?? body.error).toBeTruthy()
    expect(JSON.stringify(body)).not.toContain('ran\\n')
  })

  it('affects only its own program: the next run starts unchanged', async () => {
    const env_vars = {
      PYTHONPATH: '/home/baponi',
      PYTHONWARNINGS: 'error',
      NODE_DEBUG: 'fs',
      LANG: 'C',
      LESSOPEN: '|evil',
    }
    const code = 'open("sitecustomize.py", "w").write("print(1)"); import os; print(os.environ["PYTHONPATH"])'
    expect((await execute(story.url, 'python', code, { env_vars })).stdout).toBe('/home/baponi\n')
    expect(await execute(story.url, 'python', 'import os; print("PYTHONPATH" in os.environ)')).toMatchObject({
      stdout: 'False\n',
      stderr: '',
    })
    expect((await execute(story.url, 'bash', 'echo $LANG $LESSOPEN')).stdout).toBe('C.UTF-8\n')
  })

  it('does not affect the preparation of a run, whatever its value', async () => {
    const env_vars = {
      MALLOC_TRACE: '/tmp/trace',
      TZ: ':/etc/passwd',
      A: '$(touch /tmp/x) `id` ; \' " \\ \n %s',
      LC_ALL: 'xx_YY',
    }
    const run = await execute(story.url, 'bash', 'printf %s "$A"; ls /tmp', { env_vars })
    expect(run).toMatchObject({ stdout: env_vars.A, exit_code: 0 })
  })
})

describe('an invalid call', () => {
  it.each<[string, object]>([
    ['no code', { language: 'bash' }],
    ['code that is no text', { code: 7 }],
    ['a language that is none', { code: '1', language: 'cobol' }],
    ['a timeout below one', { code: '1', timeout: 0 }],
    ['a timeout that is no number', { code: '1', timeout: '10' }],
    ['variables that are a list', { code: '1', env_vars: ['A=1'] }],
    ['a name that is no variable', { code: '1', env_vars: { 'a b': '1' } }],
    ['input that is no text', { code: '1', stdin: { a: 1 } }],
    ['half a character', { code: 'x = "\ud83d"' }],
  ])('is rejected with an error about the field: %s', async (_what, body) => {
    const answer = await refused(body)
    expect(answer.status).toBe(400)
    expect(answer.body.error).toMatch(/validation_error|invalid_request/)
    expect(answer.body.message).not.toBe('')
  })

  it.each<[string, object]>([
    ['cwd', { code: '1', cwd: '/does/not/exist' }],
    ['sessionId', { code: '1', sessionId: 'x' }],
  ])('with an unknown field is accepted, and a warning names the field: %s', async (field, body) => {
    const response = await fetch(`${story.url}/v1/sandbox/execute`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ language: 'bash', ...body }),
    })
    expect(response.status).toBe(200)
    expect(response.headers.get('x-glovebox-warning')).toContain(field)
  })

  it('to run a faulty program succeeds and reports the error of the program', async () => {
    const run = await execute(story.url, 'python', 'import os; os.chdir("/does/not/exist")')
    expect(run).toMatchObject({ exit_code: 1, stderr: expect.stringContaining("'/does/not/exist'") })
  })
})

describe('a cancelled call', () => {
  it.each(['rest', 'mcp'])('over %s releases its story.place, its processes and its response', async (door) => {
    const code = 'echo begun; setsid sleep 600 & setsid sleep 600'
    const occupied = await follow(story.url, 'bash', 'sleep 600', { timeout: 60 })
    let answer: Promise<unknown>
    let cancel: () => Promise<unknown>
    if (door === 'rest') {
      const run = await follow(story.url, 'bash', code, { timeout: 60 })
      await run.said('begun')
      cancel = () => post(`${story.url}/v1/executions/${run.runId}/cancel`, {})
      answer = run.result.then(({ ending }) => ending?.kind)
    } else {
      const calling = post<RpcAnswer>(
        `${story.url}/mcp`,
        executeBody('to cancel', { language: 'bash', code, timeout: 60 }),
      )
      await until(() => slotsOf(story.place).some(({ runPids }) => runPids.length > 2), 'the call runs')
      const params = { requestId: 'to cancel', reason: 'no longer wanted' }
      cancel = () => post(`${story.url}/mcp`, { jsonrpc: '2.0', method: 'notifications/cancelled', params })
      answer = calling.then(({ body }: Answer<RpcAnswer>) => body.result?.structuredContent.ending.kind ?? 'resolved')
    }
    // Both places are taken, so this run waits for one.
    const next = execute(story.url, 'bash', 'echo next')
    await cancel()
    expect(await next).toMatchObject({ stdout: 'next\n' })
    expect(await answer).toMatch(/cancelled|resolved/)
    await post(`${story.url}/v1/executions/${occupied.runId}/cancel`, {})
    await occupied.result
    await until(nothingRuns, 'nothing of it is left')
  })

  it('never executes when it was still waiting', async () => {
    const taken = [
      await follow(story.url, 'bash', 'sleep 600', { timeout: 60 }),
      await follow(story.url, 'bash', 'sleep 600', { timeout: 60 }),
    ]
    const waiting = post<RpcAnswer>(
      `${story.url}/mcp`,
      executeBody('waiting', { language: 'bash', code: 'echo never' }),
    )
    await until(() => story.place.runs().filter(({ ending }) => ending === null).length === 3, 'it waits')
    await post(`${story.url}/mcp`, {
      jsonrpc: '2.0',
      method: 'notifications/cancelled',
      params: { requestId: 'waiting' },
    })
    expect(JSON.stringify((await waiting).body ?? '')).not.toContain('never\\n')
    for (const { runId } of taken) await post(`${story.url}/v1/executions/${runId}/cancel`, {})
    for (const { result } of taken) await result
    expect(story.place.runs().at(-1)).toMatchObject({ ending: expect.stringContaining('cancelled') })
  })
})

describe('network access', () => {
  it('is unavailable: names, addresses and the host itself are refused immediately', async () => {
    const listener = createServer((socket) => socket.end('reached')).listen(0, '127.0.0.1')
    await once(listener, 'listening')
    const { port } = listener.address() as { port: number }
    const code = `import socket, errno
for what, go in (
    ("name", lambda: socket.getaddrinfo("example.com", 80)),
    ("address", lambda: socket.create_connection(("192.0.2.1", 80), 5)),
    ("six", lambda: socket.create_connection(("2001:db8::1", 80), 5)),
    ("resolver", lambda: socket.create_connection(("169.254.169.254", 80), 5)),
    ("machine", lambda: socket.create_connection(("127.0.0.1", ${port}), 5)),
    ("server", lambda: socket.create_connection(("127.0.0.1", ${story.server.port}), 5)),
):
    try: go(); print(what, "REACHED")
    except socket.gaierror as e: print(what, "no name")
    except OSError as e: print(what, errno.errorcode[e.errno])
`
    const run = await execute(story.url, 'python', code, { timeout: 10 })
    listener.close()
    expect(run.ending).toEqual({ kind: 'exited', code: 0 })
    expect(run.stdout.trim().split('\n')).toEqual([
      'name no name',
      'address ENETUNREACH',
      expect.stringMatching(/^six (?:ENETUNREACH|EADDRNOTAVAIL|EAFNOSUPPORT)$/),
      'resolver ENETUNREACH',
      'machine ECONNREFUSED',
      'server ECONNREFUSED',
    ])
  })
})

describe('a server that shuts down', () => {
  it('waits for runs that finish in time, ends the others, and exits with all child processes', async () => {
    const other = new Place()
    try {
      const draining = await other.start('--no-prewarm-jails', '--drain-s', '3')
      const before = tracesOf(other).files.filter((path) => path.includes('/engine/'))
      const short = await follow(draining.url, 'bash', 'echo short; sleep 1; echo done')
      const long = await follow(draining.url, 'bash', "trap '' TERM; echo long; setsid sleep 600 & sleep 600", {
        timeout: 600,
      })
      await Promise.all([short.said('short'), long.said('long')])
      draining.signal('SIGTERM')
      expect(await short.result).toMatchObject({ ending: { kind: 'exited', code: 0 }, stdout: 'short\ndone\n' })
      expect(await long.result).toMatchObject({ ending: { kind: 'shutdown' } })
      expect(await within(draining.exited, 40_000, 'it ends')).toEqual({ code: 0, signal: null })
      const { processes, mounts, cgroups, containers, idLeases, files } = tracesOf(other)
      expect({ processes, cgroups, containers, idLeases }).toEqual({
        processes: [],
        cgroups: [],
        containers: [],
        idLeases: [],
      })
      expect(mounts.filter((line) => line.includes(other.directory))).toEqual([])
      expect(before).not.toEqual([])
      expect(files.filter((path) => path.includes('/engine/'))).toEqual([])
    } finally {
      await other.remove()
    }
  })
})

describe('a host that lacks a required isolation feature', () => {
  /** Starts a server after some shell commands, in its own mount namespace. */
  async function startAfter(commands: string, ...words: string[]): Promise<{ code: number; stderr: string }> {
    const { directory, frontUid } = story.place
    const home = join(directory, 'lacking')
    mkdirSync(home, { recursive: true })
    const own = [
      '--home',
      join(home, 'home'),
      '--state-dir',
      join(home, 'state'),
      '--port',
      '0',
      '--dev',
      '--front-uid',
      `${frontUid}`,
    ]
    const child = spawn(
      'unshare',
      ['--mount', '--', 'sh', '-c', `${commands} && exec "$@"`, 'sh', program, 'serve', ...own, ...words],
      { stdio: ['ignore', 'ignore', 'pipe'], env: { PATH: process.env.PATH ?? '' } },
    )
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')])
    return { code: code as number, stderr }
  }

  /** Hides programs wherever they are installed. */
  const without = (...names: string[]) =>
    `for name in ${names.join(' ')}; do for dir in /usr/bin /usr/sbin /usr/local/bin /usr/local/sbin; do ` +
    '[ ! -e $dir/$name ] || mount --bind /dev/null $dir/$name; done; done'

  it.each<[what: string, commands: string, words: string[], named: RegExp]>([
    ['cgroups', 'mount -t tmpfs none /sys/fs/cgroup', [], /cgroup/],
    ['the runtime that was asked for', without('crun'), ['--runtime', 'crun'], /crun/],
    ['the right to mount', 'set -- setpriv --bounding-set=-sys_admin "$@"', [], /CAP_SYS_ADMIN/],
    ['any runtime', without('crun', 'runc', 'runsc'), [], /crun[\s\S]*runc/],
  ])('says so at its start and does not serve with less: %s', async (_what, commands, words, named) => {
    const { code, stderr } = await startAfter(commands, ...words)
    expect(code).toBe(78)
    expect(stderr).toMatch(named)
    // The reason, followed by the remedy.
    expect(stderr).toMatch(/glovebox: .+\n +\S.+/)
    expect(stderr).not.toMatch(/ {4}at .+\.ts:\d+/)
  })
})
