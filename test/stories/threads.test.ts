import { execFileSync } from 'node:child_process'
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { callTool, execute, post } from '../support/calls.ts'
import { until } from '../support/glovebox.ts'
import { loopDevicesOf } from '../support/storage-traces.ts'
import { openStory } from '../support/story.ts'

const story = openStory([
  ...['--limit-thread', '16MiB', '--limit-thread-files', '3000', '--storage-reserve', '0'],
  ...['--threads-mounted-max', '32', '--thread-idle-s', '1'],
])

const inThread = (thread_id: string, code: string, language = 'bash') =>
  execute(story.url, language, code, { thread_id })

interface Download {
  result: { isError: boolean; content: { type: string; text: string; data?: string }[] }
}

async function download(id: string, path: string): Promise<Download['result']> {
  const args = { source: 'thread', id, path }
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'files_download', arguments: args } }
  return (await post<Download>(`${story.url}/mcp`, message)).body.result
}

const images = () => join(story.place.directory, 'home/storage/threads/org_dev')

describe('a thread', () => {
  it('keeps files for every language, and nothing else of a call', async () => {
    await inThread('kept', 'open("a.txt", "w").write("from python"); open("/tmp/b", "w")', 'python')
    await inThread('kept', 'require("node:fs").appendFileSync("a.txt", ", from node")', 'node')
    const { stdout } = await inThread('kept', 'cat a.txt; echo; ls /tmp; pwd; echo $HOME; stat -c %U:%a .')
    expect(stdout).toBe('from python, from node\n/home/baponi\n/home/baponi\nbaponi:755\n')
  })

  it('keeps no copy of a program that uses its file, and does not report one', async () => {
    const cases = {
      python: 'import os; open("data", "w").write(os.path.dirname(__file__)); print(os.listdir("."))',
      node: 'const fs = require("fs"); fs.writeFileSync("data", __filename); console.log(fs.readdirSync("."))',
      typescript:
        'import fs from "node:fs"; fs.writeFileSync("data", import.meta.filename as string); console.log(fs.readdirSync("."))',
      bash: 'echo "$0" >data; ls -A',
    }
    for (const [language, code] of Object.entries(cases)) {
      const first = await inThread(`asks-${language}`, code, language)
      expect(first.stdout).toMatch(/\.glovebox-main\.[a-z]{2}/)
      expect(first).toMatchObject({ exit_code: 0, files: [{ path: 'data' }] })
      expect((await inThread(`asks-${language}`, 'ls -A')).stdout).toBe('data\n')
    }
  })

  it('replaces what has the name of the copy of a program, and does without a copy where it cannot', async () => {
    const taken =
      'ln -s data .glovebox-main.py; ln -s data .glovebox-main.sh; mkdir -p .glovebox-main.js/full; echo x >data'
    await inThread('taken', taken)
    const python = 'import os; print(os.path.islink(__file__), open("data").read(), end="")'
    expect((await inThread('taken', python, 'python')).stdout).toBe('False x\n')
    expect((await inThread('taken', 'test -L "$0"; echo $?; cat data')).stdout).toBe('1\nx\n')
    expect((await inThread('taken', 'console.log(__filename)', 'node')).stdout).toBe('/run/glovebox/main.js\n')
    expect((await inThread('taken', 'ls -A')).stdout).toBe('.glovebox-main.js\ndata\n')
  })

  it('is accepted under the other parameter names that models use', async () => {
    await inThread('names', 'echo x >/mnt/data/x; echo y >/workspace/y')
    expect((await inThread('names', 'ls')).stdout).toBe('x\ny\n')
  })

  it('supports locks, links, modes, Unix sockets and unusual names like a disk', async () => {
    const code = `
import os, sqlite3, mmap
db = sqlite3.connect('data.db'); db.execute('pragma journal_mode=wal'); db.execute('create table t(x)')
db.execute('insert into t values (1)'); db.commit(); db.close()
os.link('data.db', 'hard'); os.symlink('data.db', 'soft'); os.chmod('hard', 0o640)
name = ' ü\\n-rf *'; open(name, 'w').write('odd'); os.setxattr(name, 'user.note', b'kept')
open(b'\\xff\\xfe', 'w').close()
`
    expect(await inThread('disk', code, 'python')).toMatchObject({ exit_code: 0 })
    const look = `
import os, sqlite3
print(sqlite3.connect('data.db').execute('select x from t').fetchall(), os.stat('hard').st_nlink, os.readlink('soft'))
print(oct(os.stat('data.db').st_mode & 0o777), os.getxattr(' ü\\n-rf *', 'user.note'), os.path.exists(b'\\xff\\xfe'))
`
    expect((await inThread('disk', look, 'python')).stdout).toBe("[(1,)] 2 data.db\n0o640 b'kept' True\n")
  })

  it('reports that it is full to the program and in the ending, by bytes and by files', async () => {
    const bytes = await inThread('full', 'open("big", "wb").write(b"x" * (64 << 20))', 'python')
    expect(bytes.ending).toEqual({ kind: 'disk_quota', limit_bytes: 16 * 1024 * 1024 })
    expect(bytes.stderr).toContain('No space left on device')
    const files = await inThread(
      'full',
      'import os\nos.remove("big")\nfor i in range(5000): open(f"f{i}", "w")',
      'python',
    )
    expect(files.ending.kind).toBe('disk_quota')
    const freed = await inThread('full', 'rm f* && echo room >small && cat small')
    expect(freed).toMatchObject({ stdout: 'room\n', exit_code: 0 })
  })

  it('rejects a second call while busy, and is free when its call is cancelled', async () => {
    const controller = new AbortController()
    const going = fetch(`${story.url}/v1/sandbox/execute`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/x-ndjson' },
      body: JSON.stringify({ code: 'echo on; sleep 60', language: 'bash', thread_id: 'busy' }),
      signal: controller.signal,
    })
    const traceId = (await going).headers.get('x-trace-id')
    const refused = await callTool(story.url, { code: 'true', language: 'bash', thread_id: 'busy' })
    expect(refused).toMatchObject({ status: 409, body: { error: { code: -32000 } } })
    await post(`${story.url}/v1/executions/${traceId}/cancel`, {})
    await until(
      () =>
        execute(story.url, 'bash', 'true', { thread_id: 'busy' }).then(
          () => true,
          () => false,
        ),
      'the thread is free',
    )
    controller.abort()
  })

  it('is given to exactly one of fifty simultaneous first calls', async () => {
    const body = { code: 'sleep 1; echo once >>log; cat log', language: 'bash', thread_id: 'first' }
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => post<{ stdout?: string }>(`${story.url}/v1/sandbox/execute`, body)),
    )
    const statuses = answers.map(({ status }) => status)
    expect(statuses.filter((status) => status === 200)).toHaveLength(1)
    expect(statuses.filter((status) => status === 409)).toHaveLength(49)
    expect((await inThread('first', 'cat log')).stdout).toBe('once\n')
  })
})

describe('hostile files in a thread', () => {
  it('are neither followed nor waited for, and do not slow the next call down', async () => {
    const traps = `
import os
for i in range(400): os.mkfifo(f'fifo{i}')
os.symlink('/etc/passwd', 'out'); os.symlink('/proc/1/root/etc/shadow', 'proc'); os.symlink('loop', 'loop')
os.symlink('..', 'up'); os.mkdir('dir'); os.symlink('/etc', 'dir/etc'); open('plain', 'w').write('x'); os.link('plain', 'hard')
os.truncate(os.open('sparse', os.O_CREAT | os.O_WRONLY), 900 << 20)
depth = 0
while depth < 1500: os.mkdir('d'); os.chdir('d'); depth += 1
open('bottom', 'w').write('deep')
`
    expect(await inThread('traps', traps, 'python')).toMatchObject({ exit_code: 0 })
    for (const [path, words] of [
      ['fifo0', 'fifo'],
      ['out', 'link'],
      ['proc', 'link'],
      ['loop', 'link'],
      ['dir/etc/passwd', 'not a directory'],
      ['dir', 'directory'],
    ] as const) {
      const result = await download('traps', path)
      expect(result.isError, path).toBe(true)
      expect(result.content[0]?.text, path).toContain(words)
    }
    // Too large to read: a result with a link.
    expect((await download('traps', 'sparse')).isError).toBe(false)
    await Promise.all(Array.from({ length: 200 }, (_, i) => download('traps', `fifo${i}`)))
    expect((await download('traps', 'hard')).content[0]?.text).toBe('x')
    expect((await download('traps', `${'d/'.repeat(1500)}bottom`)).content[0]?.text).toBe('deep')
    expect((await inThread('traps', 'ls | wc -l')).stdout).toMatch(/^\d+\n$/)
  })

  it('are returned as the bytes that were written, with whole characters', async () => {
    await inThread('bytes', 'open("wide", "w").write("x" + "€" * 349525)', 'python')
    const whole = `x${'€'.repeat(349_525)}`
    const many = await Promise.all(Array.from({ length: 60 }, () => download('bytes', 'wide')))
    for (const { content } of many) expect(content[0]?.text === whole).toBe(true)
  })
})

describe('a thousand threads', () => {
  it('are created on demand, cost little disk space, and are unmounted when idle', async () => {
    const names = Array.from({ length: 1_000 }, (_, n) => `many-${n}`)
    const next = names.values()
    const worker = async () => {
      for (const name of next) {
        const { stdout } = await inThread(name, `echo ${name} >n; cat n`)
        expect(stdout).toBe(`${name}\n`)
      }
    }
    await Promise.all(Array.from({ length: 8 }, worker))
    // The kernel detaches the device of an unmounted image a moment after the unmount.
    await until(() => loopDevicesOf(story.place.directory).length <= 32, 'at most 32 threads are mounted')
    await until(() => loopDevicesOf(story.place.directory).length === 0, 'idle threads are unmounted')
    const allocated = readdirSync(images())
      .filter((file) => file.startsWith('many-'))
      .map((file) => statSync(join(images(), file)).blocks * 512)
    expect(allocated).toHaveLength(1_000)
    expect(allocated.reduce((sum, bytes) => sum + bytes, 0) / 1_000).toBeLessThan(300 * 1024)
    expect((await inThread('many-7', 'cat n')).stdout).toBe('many-7\n')
    await until(() => loopDevicesOf(story.place.directory).length === 0, 'it is unmounted again')
    execFileSync('e2fsck', ['-fn', join(images(), 'many-7.ext4')], { stdio: 'pipe' })
  }, 240_000)
})
