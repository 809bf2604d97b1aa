import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runProgram } from '../../src/cli/program.ts'
import { withCommandIo } from '../support/command-io.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

let front: Front
let directory: string
beforeAll(async () => {
  front = await openFront(threadsProfile)
  directory = mkdtempSync(join(tmpdir(), 'glovebox-transfer-'))
})
afterAll(async () => {
  await front.close()
  rmSync(directory, { recursive: true })
})

type More = Parameters<typeof withCommandIo>[1]

const glovebox = (words: string[], { env, ...more }: More = {}) =>
  withCommandIo((io) => runProgram(words, io), { env: { GLOVEBOX_URL: front.url, ...env }, ...more })

/** Runs Bash code on a thread. */
async function inThread(id: string, code: string): Promise<string> {
  const response = await front.post('/v1/sandbox/execute', { language: 'bash', code, thread_id: id })
  return ((await response.json()) as { stdout: string }).stdout
}

/** Makes local files; a name that ends with a slash is a directory. */
function tree(name: string, files: Record<string, string>): string {
  const root = join(directory, name)
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), content)
  }
  return root
}

const filesBelow = (root: string): Record<string, string> =>
  Object.fromEntries(
    readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      .sort()
      .map((path) => [path.slice(root.length + 1), readFileSync(path, 'utf8')]),
  )

describe('glovebox push', () => {
  it('uploads directories with what is in them, but follows no link inside', async () => {
    const root = tree('project', { 'a.txt': 'a', 'sub/deep/b.txt': 'bb', 'sub/empty': '' })
    symlinkSync('/etc/hostname', join(root, 'sub/link'))
    const { code, stderr } = await glovebox(['push', root, '--thread', 'tree', '--path', 'in'])
    expect(code).toBe(0)
    expect(stderr).toContain(`skipped ${join(root, 'sub/link')}, which is neither a file nor a directory`)
    expect(stderr).toContain('3 files, 3 bytes')
    expect(await inThread('tree', 'find . -type f | sort | xargs -n1 sh -c \'echo "$0: $(cat $0)"\'')).toBe(
      './in/project/a.txt: a\n./in/project/sub/deep/b.txt: bb\n./in/project/sub/empty: \n',
    )
  })

  it('uploads what is in a directory that is named by a dot', async () => {
    const root = tree('dot', { 'x/y': '1', z: '2' })
    expect((await glovebox(['push', `${root}/.`, '--thread', 'dot'])).code).toBe(0)
    expect(await inThread('dot', 'find . -type f | sort')).toBe('./x/y\n./z\n')
  })

  it('expands globs that the shell did not, and prefers a file with that name', async () => {
    const root = tree('globs', { 'a.csv': '1', 'b.csv': '2', 'c.txt': '3', 'd/e.csv': '4', 'f[1].csv': '5' })
    for (const pattern of ['*.csv', 'f[1].csv', '**/e.csv']) {
      expect((await glovebox(['push', join(root, pattern), '--thread', 'globs'])).code).toBe(0)
    }
    expect(await inThread('globs', 'find . -type f | sort')).toBe('./a.csv\n./b.csv\n./d/e.csv\n./f[1].csv\n')
    const missing = await glovebox(['push', join(root, '*.png'), '--thread', 'globs'])
    expect([missing.code, missing.stderr]).toEqual([66, expect.stringContaining('nothing matches')])
  })

  it('uploads standard input byte for byte, and requires a name for it', async () => {
    const bytes = Buffer.from([0, 255, 254, 10, 13, 27, 0])
    const words = ['push', '-', '--thread', 'input', '--path', 'in/x.bin']
    expect(await glovebox(words, { stdin: bytes })).toMatchObject({ code: 0, stderr: '- → in/x.bin, 7 bytes\n' })
    expect(await inThread('input', 'od -An -tx1 in/x.bin')).toBe(' 00 ff fe 0a 0d 1b 00\n')
    expect((await glovebox(['push', '-', '--thread', 'input'])).code).toBe(64)
    expect((await glovebox(['push', '-', 'other', '--thread', 'input', '--path', 'x'])).code).toBe(64)
  })

  it('ends when it is interrupted while it waits for standard input', async () => {
    const stop = new AbortController()
    const stdin = new PassThrough()
    stdin.write('begun')
    setImmediate(() => stop.abort('SIGINT'))
    const { code, stderr } = await glovebox(['push', '-', '--thread', 'i', '--path', 'x'], { stdin, stop: stop.signal })
    expect([code, stderr]).toEqual([130, 'glovebox push: interrupted\n'])
  })

  it('prints what it uploaded as JSON, and shows progress on a terminal', async () => {
    const root = tree('one', { f: 'content' })
    const from = join(root, 'f')
    const { stdout, stderr } = await glovebox(['push', from, '--thread', 'json', '--json'], { terminals: ['stderr'] })
    expect(JSON.parse(stdout.toString())).toEqual([{ from, to: 'f', size: 7 }])
    expect(stderr).toBe('')
    const shown = await glovebox(['push', from, '--thread', 'json'], { terminals: ['stderr'] })
    expect(shown.stderr).toBe(`\r\x1b[K1/1  100 % of 7 bytes  f\r\x1b[K${from} → f, 7 bytes\n`)
  })

  it('fails for missing files and wrong targets', async () => {
    const file = join(tree('wrong', { f: '' }), 'f')
    expect((await glovebox(['push', join(directory, 'gone'), '--thread', 'x'])).code).toBe(66)
    expect((await glovebox(['push', file])).code).toBe(64)
    expect((await glovebox(['push', file, '--thread', 'x', '--path', '../y'])).code).toBe(64)
    const unreachable = { env: { GLOVEBOX_URL: 'http://127.0.0.1:1' } }
    expect((await glovebox(['push', file, '--thread', 'x'], unreachable)).code).toBe(69)
  })
})

describe('glovebox pull', () => {
  const content =
    "mkdir -p out/deep; echo 1 >out/a.csv; echo 2 >out/deep/b.csv; echo 3 >out/c.txt; echo 4 >'out/d[1].csv'"
  beforeAll(() => inThread('pulled', content))
  const pull = (...words: string[]) => glovebox(['pull', ...words, '--thread', 'pulled'])

  it('downloads directories, under their own name into an existing one', async () => {
    const all = { 'a.csv': '1\n', 'c.txt': '3\n', 'd[1].csv': '4\n', 'deep/b.csv': '2\n' }
    const [fresh, existing, whole] = ['fresh', 'existing', 'whole'].map((name) => join(directory, name))
    expect((await pull('out', fresh!)).code).toBe(0)
    expect(filesBelow(fresh!)).toEqual(all)
    mkdirSync(existing!)
    expect((await pull('out/', existing!)).stderr).toContain('4 files, 8 bytes')
    expect(filesBelow(join(existing!, 'out'))).toEqual(all)
    expect((await pull('.', whole!)).code).toBe(0)
    expect(filesBelow(join(whole!, 'out'))).toEqual(all)
  })

  it('downloads what matches a glob, with the directories below its fixed part', async () => {
    const [flat, deep, literal] = ['flat', 'deep', 'literal'].map((name) => join(directory, name))
    expect((await pull('out/*.csv', flat!)).code).toBe(0)
    expect(Object.keys(filesBelow(flat!))).toEqual(['a.csv', 'd[1].csv'])
    expect((await pull('out/**/*.csv', deep!)).code).toBe(0)
    expect(Object.keys(filesBelow(deep!))).toEqual(['a.csv', 'd[1].csv', 'deep/b.csv'])
    expect((await pull('out/d[1].csv', `${literal}/`)).code).toBe(0)
    expect(filesBelow(literal!)).toEqual({ 'd[1].csv': '4\n' })
    expect((await pull('out/{deep,c*}', join(directory, 'braces'))).code).toBe(0)
    expect(Object.keys(filesBelow(join(directory, 'braces')))).toEqual(['c.txt', 'deep/b.csv'])
    expect(await pull('out/*.png', flat!)).toMatchObject({ code: 70, stderr: expect.stringContaining('out/*.png') })
  })

  it('prints one file, byte for byte, and escapes it on a terminal', async () => {
    await inThread('pulled', String.raw`printf '\0\377\033[2Jx' >raw`)
    const words = ['pull', 'raw', '-', '--thread', 'pulled']
    expect((await glovebox(words)).stdout).toEqual(Buffer.from([0, 255, 27, 91, 50, 74, 120]))
    expect((await glovebox(words, { terminals: ['stdout'] })).stdout.toString()).toBe('\\x00\ufffd\\x1b[2Jx')
    expect((await glovebox(['pull', 'out', '-', '--thread', 'pulled'])).code).toBe(70)
  })

  it('prints what it downloaded as JSON', async () => {
    const to = join(directory, 'json.csv')
    const { stdout } = await pull('out/a.csv', to, '--json')
    expect(JSON.parse(stdout.toString())).toEqual([{ from: 'out/a.csv', to, size: 2 }])
  })

  it('keeps names with control characters, and escapes them on a terminal', async () => {
    await inThread('names', String.raw`touch $'a\e[2Jb' $'c\nd'`)
    const to = join(directory, 'names')
    const words = ['pull', '.', to, '--thread', 'names']
    const { stderr } = await glovebox(words, { terminals: ['stderr'] })
    expect(stderr).toContain('a\\x1b[2Jb →')
    expect(stderr).toContain('c\\x0ad →')
    expect(readdirSync(to).sort()).toEqual(['a\x1b[2Jb', 'c\nd'])
  })
})

describe('glovebox ls', () => {
  beforeAll(() => inThread('listed', "mkdir -p d/e; printf abc >a.txt; echo >d/b.txt; touch d/e/c.txt $'x\\e]0;t'"))
  const ls = async (...words: string[]) => (await glovebox(['ls', ...words, '--thread', 'listed'])).stdout.toString()

  it('lists directories, files and globs, one on each line', async () => {
    expect(await ls()).toBe('a.txt\nd/\nx\x1b]0;t\n')
    expect(await ls('d')).toBe('d/b.txt\nd/e/\n')
    expect(await ls('d/b.txt')).toBe('d/b.txt\n')
    expect(await ls('d', '-R')).toBe('d/b.txt\nd/e/\nd/e/c.txt\n')
    expect(await ls('**/*.txt')).toBe('a.txt\nd/b.txt\nd/e/c.txt\n')
    expect(await glovebox(['ls', 'gone', '--thread', 'listed'])).toMatchObject({ code: 70 })
    expect(await glovebox(['ls', '--thread', 'no-such-thread'])).toMatchObject({ code: 70 })
    expect(await glovebox(['ls'])).toMatchObject({ code: 64 })
  })

  it('prints sizes and times, or JSON', async () => {
    expect(await ls('a.txt', '--long')).toMatch(/^SIZE {2}MODIFIED .*PATH\n3 {5}\d{4}-.*Z {2}a\.txt\n$/)
    expect(JSON.parse(await ls('a.txt', '--json'))).toMatchObject([{ path: 'a.txt', size: 3, is_directory: false }])
  })

  it('escapes names and colors directories on a terminal', async () => {
    const { stdout } = await glovebox(['ls', '--thread', 'listed'], { terminals: ['stdout'] })
    expect(stdout.toString()).toBe('a.txt\n\x1b[34md/\x1b[39m\nx\\x1b]0;t\n')
  })
})

describe('a server that sends hostile names', () => {
  let server: Server
  let names: string[]
  beforeAll(async () => {
    server = createServer((request, response) => {
      response.setHeader('content-type', 'application/json')
      const files = names.map((name) => ({ name, size: 1, modified: '', is_directory: false }))
      if (request.url === '/v1/files/list') return void response.end(JSON.stringify({ files, next_cursor: null }))
      if (request.url === '/file') return void response.end('x')
      response.end(JSON.stringify({ url: `http://${request.headers.host}/file` }))
    }).listen(0, '127.0.0.1')
    await new Promise((listening) => server.once('listening', listening))
  })
  afterAll(() => new Promise((closed) => server.close(closed)))

  it.each(['..', '../evil', '/etc/evil', 'a/b', '', '.', 'nul\0'])('writes nothing for %j', async (name) => {
    names = [name]
    const target = join(directory, 'hostile', 'target')
    mkdirSync(target, { recursive: true })
    const env = { GLOVEBOX_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
    for (const path of ['*', '.']) {
      const { code, stderr } = await glovebox(['pull', path, target, '--thread', 't'], { env })
      expect([code, stderr]).toEqual([70, expect.stringContaining('as the name of a file')])
    }
    expect(filesBelow(join(directory, 'hostile'))).toEqual({})
  })
})
