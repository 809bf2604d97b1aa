import { spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { killIfThere, until } from '../support/glovebox.ts'
import { allProcesses, slotsOf, tracesOf } from '../support/machine.ts'
import { disposablePlaces, openStory } from '../support/story.ts'

const story = openStory()
const newPlace = disposablePlaces()

interface Answer {
  status: number
  /** The test says what it has. */
  body: ReturnType<typeof JSON.parse>
}

const api = (url: () => string) => {
  const call = async (method: string, path: string, body?: unknown): Promise<Answer> => {
    const response = await fetch(`${url()}/v1/sandboxes${path}`, {
      method,
      ...(method === 'POST' && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body ?? {}) }),
    })
    const text = await response.text()
    return { status: response.status, body: text === '' ? null : JSON.parse(text) }
  }
  const run = async (name: string, command: string) =>
    (await call('POST', `/${name}/commands`, { command: 'bash', args: ['-c', command] })).body
  return { call, run }
}

/** Yields the lines of an answer as they arrive; ending the iteration disconnects. */
async function* readLines(response: Response): AsyncGenerator<ReturnType<typeof JSON.parse>, void, undefined> {
  let rest = ''
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) yield JSON.parse(line)
  }
}

describe('a sandbox of a server', () => {
  const { call, run } = api(() => story.url)

  it('runs commands that share its files, its processes and its variables', async () => {
    const created = await call('POST', '', { name: 'main', env_vars: { COLOR: 'blue' }, metadata: { case: '7' } })
    expect([created.status, created.body.state]).toEqual([201, 'running'])
    expect(await run('main', 'id -u; pwd -P | grep -c .; echo $COLOR; echo kept > file')).toMatchObject({
      exit_code: 0,
      stdout: '0\n1\nblue\n',
      stderr: '',
    })
    const { body: background } = await call('POST', '/main/processes', { command: 'sleep', args: ['600'] })
    expect((await run('main', 'cat file; pgrep -x sleep | wc -l')).stdout).toBe('kept\n1\n')
    expect((await call('DELETE', `/main/processes/${background.process}`)).status).toBe(204)
    expect((await run('main', 'pgrep -x sleep | wc -l')).stdout).toBe('0\n')
  })

  it('keeps its disk when it is stopped, and loses its processes', async () => {
    await call('POST', '/main/processes', { command: 'sleep', args: ['600'] })
    expect((await call('POST', '/main/stop')).body.state).toBe('stopped')
    expect((await call('POST', '/main/start')).body.state).toBe('running')
    expect((await run('main', 'cat file; pgrep -x sleep | wc -l')).stdout).toBe('kept\n0\n')
    expect((await call('GET', '/main/processes')).body.data).toEqual([])
  })

  it('does nothing while it is paused', async () => {
    const script = 'while :; do echo tick; sleep 0.02; done'
    const { body } = await call('POST', '/main/processes', { command: 'bash', args: ['-c', script] })
    const at = `/main/processes/${body.process}`
    await call('GET', `${at}/output?wait=10`)
    expect((await call('POST', '/main/pause')).body.state).toBe('paused')
    expect((await call('GET', `${at}/output`)).body.code).toBe('sandbox_not_running')
    expect((await call('POST', '/main/resume')).body.state).toBe('running')
    const { cursor } = (await call('GET', `${at}/output?wait=10`)).body
    expect((await call('GET', `${at}/output?wait=10&after=${cursor}`)).body.stdout).toContain('tick')
    expect((await call('DELETE', at)).status).toBe(204)
  })

  it('has terminals with a size, which follow a change of it', async () => {
    const size = { columns: 91, rows: 17 }
    const { body } = await call('POST', '/main/processes', {
      command: 'bash',
      args: ['-c', 'stty size; read line; stty size; exit 5'],
      terminal: size,
    })
    const at = `/main/processes/${body.process}`
    const first = (await call('GET', `${at}/output?wait=10`)).body
    expect(first.stdout).toContain('17 91')
    expect((await call('POST', `${at}/resize`, { columns: 120, rows: 40 })).status).toBe(204)
    await call('POST', `${at}/stdin`, { data: '\n' })
    expect((await call('GET', `${at}?wait=10`)).body.ending).toEqual({ kind: 'exited', code: 5 })
    expect((await call('GET', `${at}/output?after=${first.cursor}`)).body.stdout).toContain('40 120')
  })

  it('reports what it uses', async () => {
    await run('main', 'head -c 3000000 /dev/zero > zeros; sync')
    await call('POST', '/main/processes', { command: 'sleep', args: ['600'] })
    const { figures } = (await call('GET', '/main/metrics')).body
    expect(figures).toMatchObject({ memory_limit_bytes: 512 * 1024 * 1024, disk_quota_bytes: 2 * 1024 ** 3 })
    expect(figures.memory_bytes).toBeGreaterThan(0)
    expect(figures.disk_bytes).toBeGreaterThan(3_000_000)
    expect(figures.uptime_seconds).toBeGreaterThan(0)
    expect(figures.processes).toBeGreaterThan(0)
  })

  it('has files that are read and written from outside, running or stopped', async () => {
    const at = `${story.url}/v1/sandboxes/main/files`
    const put = async (path: string, body: RequestInit['body'], more = '') =>
      (await fetch(`${at}/content?path=${encodeURIComponent(path)}${more}`, { method: 'PUT', body } as RequestInit))
        .status
    const read = async (path: string) => (await fetch(`${at}/content?path=${encodeURIComponent(path)}`)).text()
    await run(
      'main',
      'echo old > script; chmod 751 script; adduser -D other 2>/dev/null || useradd other; mkdir own; chown other own',
    )

    // The kernel says that these have no bytes, and makes them on reading.
    expect(await read('/proc/version')).toMatch(/^Linux version /)
    const unreadable = await fetch(`${at}/content?path=/proc/self/mem&user=root`)
    expect([unreadable.status, ((await unreadable.json()) as { code: string }).code]).toEqual([400, 'path_invalid'])

    expect(await put('script', 'new')).toBe(200)
    expect((await run('main', 'cat script; stat -c "%a %u" script')).stdout).toBe('new751 0\n')
    expect(await put('own/file', 'x', '&user=other')).toBe(200)
    expect((await run('main', 'stat -c %U own/file')).stdout).toBe('other\n')
    expect(await put('/root-only', 'x', '&user=other')).toBe(403)

    const hostile = [' a\nb', '-rf', '$(id)', '\'"', 'ä…🙂', '%2e%2e', '...', '\u202e']
    for (const name of hostile) expect([name, await put(`odd/${name}`, name, '&parents=true')]).toEqual([name, 200])
    const listed = (await call('GET', '/main/files?path=odd')).body.data.map(({ name }: { name: string }) => name)
    expect(listed.sort()).toEqual([...hostile].sort())
    for (const name of hostile) expect(await read(`odd/${name}`)).toBe(name)
    // Up is up inside: nothing of the machine is there.
    expect((await call('GET', `/main/files/stat?path=${'../'.repeat(40)}dock`)).body.code).toBe('path_not_found')

    const piece = new Uint8Array(1024 * 1024).fill(7)
    let pieces = 0
    const large = new ReadableStream({
      pull: (stream) => (pieces++ < 100 ? stream.enqueue(piece) : stream.close()),
    })
    const sent = { method: 'PUT', body: large, duplex: 'half' } as RequestInit
    expect(await (await fetch(`${at}/content?path=large`, sent)).json()).toEqual({
      path: 'large',
      size_bytes: 104_857_600,
    })
    expect((await run('main', 'stat -c %s large')).stdout).toBe('104857600\n')

    await call('POST', '/main/stop')
    expect(await read('script')).toBe('new')
    expect(await put('later', 'while it was stopped')).toBe(200)
    expect((await call('GET', '/main')).body.state).toBe('stopped')
    const ranged = await fetch(`${at}/content?path=later`, { headers: { range: 'bytes=0-4' } })
    expect([ranged.status, await ranged.text()]).toEqual([206, 'while'])
    expect((await call('POST', '/main/start')).body.state).toBe('running')
    expect((await run('main', 'cat later; stat -c %u later; rm -r odd own large')).stdout).toBe(
      'while it was stopped0\n',
    )
  })

  it('reports changes of its files while they happen', async () => {
    const response = await fetch(`${story.url}/v1/sandboxes/main/files/watch?path=.&recursive=true`)
    const lines = readLines(response)
    expect((await lines.next()).value).toEqual({ type: 'watching' })
    await run('main', 'mkdir w; echo 1 > w1; mv w1 w2; rm w2')
    const seen: unknown[] = []
    for await (const line of lines) {
      if (line.type !== 'changed') seen.push(`${line.type} ${line.path}`)
      if (line.type === 'deleted') break
    }
    expect(seen).toEqual(['created w', 'created w1', 'moved_from w1', 'moved_to w2', 'deleted w2'])
  })

  it('is gone with its disk when it is deleted', async () => {
    expect((await call('DELETE', '/main')).status).toBe(204)
    expect((await call('GET', '/main')).status).toBe(404)
    expect((await call('POST', '', { name: 'main' })).status).toBe(201)
    expect((await run('main', 'ls | wc -l')).stdout).toBe('0\n')
    await call('DELETE', '/main')
  })
})

describe('two hundred sandboxes that are started, used, stopped and deleted', () => {
  const { call, run } = api(() => story.url)

  async function live(name: string): Promise<void> {
    expect((await call('POST', '', { name })).status).toBe(201)
    expect((await run(name, `echo ${name} > own; (setsid sleep 71237 &); cat own; ls | wc -l`)).stdout).toBe(
      `${name}\n1\n`,
    )
    if (name.endsWith('0')) {
      const code = { language: 'python', code: 'open("own").read()' }
      expect((await call('POST', `/${name}/code`, code)).body.displays[0].data['text/plain']).toContain(name)
    }
    expect((await call('POST', `/${name}/stop`)).body.state).toBe('stopped')
    expect((await call('DELETE', `/${name}`)).status).toBe(204)
  }

  /** Several at once: that is what they would leave something behind in. */
  async function liveAll(from: number, to: number): Promise<void> {
    const names = Array.from({ length: to - from }, (_, index) => `many${from + index}`)
    await Promise.all(
      [1, 2, 3, 4].map(async () => {
        for (let name = names.shift(); name !== undefined; name = names.shift()) await live(name)
      }),
    )
  }

  const isSpareDisk = (path: string) => path.includes('/storage/incoming/')

  const named = (path: string) => path.replace(story.place.directory, '').replace(/slt_[\w-]+/g, 'slt')

  /** What the server has on the machine, without the numbers in names. */
  function left() {
    const { mounts, cgroups, containers, files, temporaryFiles, loopDevices, idLeases } = tracesOf(story.place)
    const counts = { cgroups: cgroups.length, containers: containers.length, idLeases: idLeases.length }
    return {
      mounts,
      loopDevices,
      temporaryFiles,
      ...counts,
      files: files
        .filter((path) => !isSpareDisk(path))
        .map(named)
        .sort(),
    }
  }
  const descriptorsOf = (pid: number) => readdirSync(`/proc/${pid}/fd`).length
  const atRest = () =>
    until(() => {
      const slots = slotsOf(story.place)
      return slots.length === 1 && slots.every(({ guestPid }) => guestPid !== undefined)
    }, 'the slot that is ready, and no other')

  it('leave no process, cgroup, mount, device, directory or row', async () => {
    await liveAll(0, 8)
    await atRest()
    const before = left()
    const descriptors = descriptorsOf(story.server.runnerPid)
    await liveAll(8, 200)
    await atRest()
    expect(left()).toEqual(before)
    expect(tracesOf(story.place).files.filter(isSpareDisk).length).toBeLessThanOrEqual(1)
    expect(descriptorsOf(story.server.runnerPid) - descriptors).toBeLessThanOrEqual(4)
    expect(allProcesses().filter(({ words }) => words.join(' ') === 'sleep 71237')).toEqual([])
    expect((await call('GET', '')).body.data).toEqual([])
    const database = new DatabaseSync(join(story.place.directory, 'home/front/glovebox.db'), { readOnly: true })
    expect(database.prepare('select count(*) as rows from sandboxes').get()).toEqual({ rows: 0 })
    database.close()
  }, 240_000)
})

describe('a terminal of this machine', () => {
  const glovebox = fileURLToPath(new URL('../../bin/glovebox', import.meta.url))

  /** Runs a command of `glovebox sandbox` in a terminal. @param paused called at each step `pause`. */
  async function inTerminal(steps: readonly object[], words: readonly string[], paused: () => void = () => {}) {
    const driver = fileURLToPath(new URL('../support/terminal.py', import.meta.url))
    const child = spawn('python3', [driver, JSON.stringify(steps), glovebox, 'sandbox', ...words], {
      env: { ...process.env, GLOVEBOX_URL: story.url },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    let last = '{}'
    for await (const line of createInterface(child.stdout)) {
      last = line
      if (line !== 'paused') continue
      paused()
      child.stdin.write('\n')
    }
    return JSON.parse(last)
  }

  it('is that of a shell in a sandbox: size, keys, exit code', async () => {
    await api(() => story.url).call('POST', '', { name: 'tty' })
    const steps = [
      { expect: '#' },
      ...[{ send: 'stty size\r' }, { expect: '40 100' }, { size: [31, 77] }],
      { repeat: 'stty size\r', until: '31 77' },
      ...[{ send: 'sleep 1000; echo not-reached\r' }, { expect: 'not-reached' }, { repeat: '\x03', until: '^C' }],
      ...[{ send: 'echo code=$?\r' }, { expect: 'code=130' }],
      { send: 'exit 7\r' },
    ]
    expect(await inTerminal(steps, ['shell', 'tty'])).toMatchObject({ code: 7, restored: true })
    const python = [{ expect: '>>>' }, { send: 'import sys; sys.exit(5 if sys.stdin.isatty() else 6)\r' }]
    expect(await inTerminal(python, ['exec', '-it', 'tty', '--', 'python3'])).toMatchObject({ code: 5, restored: true })
  })

  it('is restored when the connection is lost', async () => {
    const { frontPid } = story.server
    const steps = [{ expect: '#' }, { send: 'echo $((40 + 2))\r' }, { expect: '42' }, { pause: true }]
    const { code, restored } = await inTerminal(steps, ['shell', 'tty'], () => killIfThere(frontPid))
    expect([code === 0, restored]).toEqual([false, true])
    await until(async () => {
      try {
        return story.server.frontPid !== frontPid && (await story.server.readiness()) === 200
      } catch {
        return false
      }
    }, 'the next front is ready')
    await api(() => story.url).call('DELETE', '/tty')
  })
})

describe('sandboxes of a server whose processes are killed', () => {
  it('survive the front, and crash with the runner without losing their disk', async () => {
    const place = newPlace()
    const server = await place.start()
    const { call, run } = api(() => server.url)
    await call('POST', '', { name: 'stays' })
    await call('POST', '', { name: 'returns', on_crash: 'restart' })
    for (const name of ['stays', 'returns']) await run(name, 'echo kept > file')
    const { body } = await call('POST', '/stays/processes', { command: 'sleep', args: ['600'] })

    const { frontPid } = server
    killIfThere(frontPid)
    await until(async () => {
      try {
        return server.frontPid !== frontPid && (await server.readiness()) === 200
      } catch {
        return false
      }
    }, 'the next front is ready')
    await until(async () => (await call('GET', '/stays')).body.state === 'running', 'it is found again')
    expect((await call('GET', `/stays/processes/${body.process}`)).body).toMatchObject({
      argv: ['sleep', '600'],
      ending: null,
    })
    expect((await run('stays', 'cat file')).stdout).toBe('kept\n')

    killIfThere(server.runnerPid)
    await until(async () => (await call('GET', '/stays')).body.state === 'crashed', 'it is crashed')
    expect((await call('GET', '/stays')).body.reason).toBe('runner_lost')
    await until(async () => (await call('GET', '/returns')).body.state === 'running', 'it is started again')
    expect((await run('returns', 'cat file')).stdout).toBe('kept\n')
    expect((await call('POST', '/stays/start')).body.state).toBe('running')
    expect((await run('stays', 'cat file')).stdout).toBe('kept\n')

    for (const name of ['stays', 'returns']) expect((await call('DELETE', `/${name}`)).status).toBe(204)
    expect(await server.stop()).toEqual({ code: 0, signal: null })
    const { cgroups, loopDevices } = tracesOf(place)
    expect({ cgroups, loopDevices }).toEqual({ cgroups: [], loopDevices: [] })
  })
})
