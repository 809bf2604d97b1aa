import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startAgent, type TestAgent } from '../../support/agent-process.ts'

const root = mkdtempSync(join(tmpdir(), 'glovebox-programs-'))
/** Only what every machine with the product has, and the Node.js of these tests. */
const bin = mkdtempSync(join(tmpdir(), 'glovebox-bin-'))
let agent: TestAgent
/** The same directory without ripgrep, git and language servers. */
let bare: TestAgent

const write = (path: string, content: string) => {
  mkdirSync(dirname(join(root, path)), { recursive: true })
  writeFileSync(join(root, path), content)
}

beforeAll(async () => {
  write(
    'src/sums.py',
    '"""Sums."""\n\n\ndef add(a, b):\n    """Adds two numbers."""\n    return a + b\n\n\nclass Ledger:\n    def total(self):\n        return add(1, 2)\n',
  )
  write(
    'src/main.go',
    'package main\n\nimport "fmt"\n\ntype Box struct {\n\tn int\n}\n\nfunc (b *Box) Size() int {\n\treturn b.n // }\n}\n\nfunc main() {\n\tfmt.Println("{")\n}\n',
  )
  write(
    'src/shop.ts',
    "import { x } from './x.ts'\n\nexport class Shop {\n  open(door: string): void {\n    console.log(door, '}')\n  }\n}\n\nexport const price = (n: number) => {\n  return n * x\n}\n",
  )
  write('test/test_sums.py', 'from sums import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n')
  write('.gitignore', 'build/\n')
  write('build/out.py', 'def add(): pass\n')
  write('.github/ci.yml', 'name: add\n')
  agent = await startAgent(root)
  for (const program of ['bash', 'grep', 'sleep', 'sh', 'cat', 'seq', 'env']) {
    const path = execFileSync('sh', ['-c', `command -v ${program}`], { encoding: 'utf8' }).trim()
    symlinkSync(path, join(bin, program))
  }
  symlinkSync('/usr/bin/python3', join(bin, 'python3'))
  bare = await startAgent(root, { PATH: bin })
})
afterAll(async () => {
  await Promise.all([agent.agent.close(), bare.agent.close()])
  for (const directory of [root, bin]) rmSync(directory, { recursive: true, force: true })
})

describe('a search for files', () => {
  for (const [name, get] of [
    ['with ripgrep', () => agent],
    ['without ripgrep and git', () => bare],
  ] as const) {
    it(`finds names by patterns ${name}`, async () => {
      const find = async (pattern: string, more = {}) =>
        (await get().ok<{ files: string[] }>('glob', { pattern, ...more })).files
          .filter((file) => !file.startsWith('build/'))
          .sort()
      expect(await find('*.py')).toEqual(['src/sums.py', 'test/test_sums.py'])
      expect(await find('**/*.py')).toEqual(['src/sums.py', 'test/test_sums.py'])
      expect(await find('src/*.{go,ts}')).toEqual(['src/main.go', 'src/shop.ts'])
      expect(await find('s?ms.[px]y')).toEqual(['src/sums.py'])
      expect(await find('*.py', { path: 'test' })).toEqual(['test/test_sums.py'])
      expect(await find('*.yml')).toEqual(['.github/ci.yml'])
      expect(await find('*.none')).toEqual([])
    })

    it(`finds lines ${name}`, async () => {
      const find = async (more: object) =>
        (await get().ok<{ lines: string[] }>('grep', more)).lines.filter((line) => !line.startsWith('build/'))
      expect((await find({ pattern: 'def \\w+\\(' })).sort()).toEqual([
        'src/sums.py:10:    def total(self):',
        'src/sums.py:4:def add(a, b):',
        'test/test_sums.py:4:def test_add():',
      ])
      expect(await find({ pattern: 'LEDGER', case_insensitive: true, output_mode: 'files_with_matches' })).toEqual([
        'src/sums.py',
      ])
      expect(await find({ pattern: 'add', output_mode: 'count', glob: 'sums.py' })).toEqual(['src/sums.py:2'])
      expect(await get().refused('grep', { pattern: '(' })).toMatch(/^pattern is not valid/)
    })

    it(`ends a search with a catastrophic pattern ${name}`, async () => {
      write('evil.txt', `${'a'.repeat(40)}!\n`)
      const { partial, lines } = await get().ok<{ partial: boolean; lines: string[] }>('grep', {
        pattern: '^(a+)+$',
        path: 'evil.txt',
      })
      expect(lines).toEqual([])
      // ripgrep takes linear time; Python is killed.
      expect(partial).toBe(name !== 'with ripgrep')
      expect(await get().ok('grep', { pattern: 'nothing-like-it' })).toMatchObject({ lines: [] })
    }, 60_000)
  }

  it('shows lines in the order of their files, with context as ripgrep prints it', async () => {
    for (const name of ['order/b.txt', 'order/a/z.txt', 'order/a-1.txt', 'order/a/1:2.txt'])
      write(name, 'x\nhit\ny\nhit\n')
    const find = async (more: object) =>
      (await agent.ok<{ lines: string[] }>('grep', { pattern: 'hit', path: 'order', ...more })).lines
    const files = ['order/a/1:2.txt', 'order/a/z.txt', 'order/a-1.txt', 'order/b.txt']
    expect(await find({ output_mode: 'files_with_matches' })).toEqual(files)
    expect(await find({ output_mode: 'count' })).toEqual(files.map((file) => `${file}:2`))
    expect(await find({})).toEqual(files.flatMap((file) => [`${file}:2:hit`, `${file}:4:hit`]))
    expect(await find({ head_limit: 1, output_mode: 'files_with_matches' })).toEqual(files.slice(0, 1))
    expect((await find({ before: 1 })).slice(0, 5)).toEqual([
      ...[`${files[0]}-1-x`, `${files[0]}:2:hit`, `${files[0]}-3-y`, `${files[0]}:4:hit`],
      '--',
    ])
  })

  it('leaves out what git ignores, also without a repository, and shows the newest first', async () => {
    const { files, total } = await agent.ok<{ files: string[]; total: number }>('glob', { pattern: '*.py', limit: 1 })
    expect([files.length, total]).toEqual([1, 2])
    expect(await agent.refused('glob', { pattern: '!*.py' })).toMatch(/must not start with !/)
  })
})

describe('a search that is not valid', () => {
  it('is refused with the argument that is wrong', async () => {
    const search = (more: object) => agent.refused('grep', { pattern: 'add', ...more })
    expect(await search({ output_mode: 'all' })).toBe(
      'unknown output_mode: all (valid: content, files_with_matches, count)',
    )
    expect(await search({ glob: '[a' })).toMatch(/^glob is not valid: error parsing glob '\[a'/)
    expect(await search({ type: 'nothing' })).toMatch(/^type is not valid: unrecognized file type: nothing/)
    expect(await search({ pattern: '(error parsing glob' })).toMatch(/^pattern is not valid \(ripgrep, Rust regex\)/)
  })
})

describe('a shell', () => {
  const bash = (command: string, more = {}, reader = 'a') =>
    agent.ok<{ text: string; exit: number; timed_out: boolean }>('bash', { command, timeout: 20, ...more }, reader)

  it('keeps its directory and exported variables, for each reader', async () => {
    await bash('cd src; export A="1 2"; B=3')
    expect((await bash('pwd; echo "$A|$B"')).text).toBe(`${root}/src\n1 2|\n`)
    expect((await bash('pwd; echo "$A"', {}, 'b')).text).toBe(`${root}\n\n`)
    expect(await bash('cd /tmp; exit 4')).toMatchObject({ exit: 4 })
    expect((await bash('pwd')).text).toBe('/tmp\n')
    await bash(`cd ${root}`)
  })

  it('survives a directory that was deleted', async () => {
    await bash('mkdir gone; cd gone; rmdir ../gone')
    expect(await bash('echo still here')).toMatchObject({ text: 'still here\n', exit: 0 })
    await bash(`cd ${root}`)
  })

  it('kills a command and its processes at the time limit', async () => {
    expect(await bash('(sleep 77 &); sleep 77', { timeout: 1 })).toMatchObject({ timed_out: true, exit: 124 })
    expect(execFileSync('sh', ['-c', "ps ax -o args | grep -c '^sleep 77' || true"], { encoding: 'utf8' }).trim()).toBe(
      '0',
    )
  })

  it('does not wait for what a command leaves in the background', async () => {
    expect(await bash('sleep 30 & echo done')).toMatchObject({ text: 'done\n', exit: 0 })
  })

  it('cuts long output in its middle', async () => {
    const { text } = await bash('seq 100000')
    expect(text.length).toBeLessThan(110_000)
    expect(text).toMatch(/^1\n2\n[\s\S]*\n\.\.\. \(output truncated, \d+ bytes elided\)\n[\s\S]*\n100000\n$/)
  })

  it('has an empty standard input', async () => {
    expect(await bash('cat; echo end')).toMatchObject({ text: 'end\n' })
  })

  it('in the background is read with a cursor and a filter, and killed', async () => {
    const { shell_id } = await agent.ok<{ shell_id: string }>('start', { command: 'echo one; echo two >&2; sleep 66' })
    const read = (more = {}) =>
      agent.ok<{ streams: { text: string; cursor: number }[]; exit: number | null }>('output', { shell_id, ...more })
    await expect.poll(async () => (await read()).streams.map(({ text }) => text)).toEqual(['one\n', 'two\n'])
    const { streams, exit } = await read({ cursors: [4, 0] })
    expect([streams.map(({ text }) => text), exit]).toEqual([['', 'two\n'], null])
    expect((await read({ filter: '^t' })).streams.map(({ text }) => text)).toEqual(['', 'two\n'])
    expect(await agent.refused('output', { shell_id, filter: '(' })).toMatch(/not a valid pattern/)
    await agent.ok('kill', { shell_id })
    expect(await agent.refused('output', { shell_id })).toBe(`unknown shell_id: ${shell_id}`)
  })

  it('that is watched reports errors, silence and its exit', async () => {
    const command = 'echo "Error: one"; echo fine; sleep 1.5; echo "panic: two" >&2; exit 3'
    const { shell_id } = await agent.ok<{ shell_id: string }>('start', {
      command,
      watch: ['^Error:', '^panic:'],
      idle_timeout: 1,
    })
    const events = async () =>
      (await agent.ok<{ events: { id: number; kind: string; line?: string; exit?: number }[] }>('events', { shell_id }))
        .events
    await expect.poll(async () => (await events()).at(-1)?.kind, { timeout: 10_000 }).toBe('exited')
    const all = await events()
    expect(all.map(({ kind, line, exit }) => [kind, line ?? exit])).toEqual([
      ['started', undefined],
      ['error', 'Error: one'],
      ['idle_timeout', undefined],
      ['error', 'panic: two'],
      ['exited', 3],
    ])
    const later = await agent.ok<{ events: object[] }>('events', { shell_id, since_event_id: all[2]!.id })
    expect(later.events).toHaveLength(2)
  })
})

describe('a snapshot', () => {
  it('holds every file byte for byte, and nothing of the repository changes', async () => {
    execFileSync('git', ['init', '-q', '-b', 'main'], { cwd: root })
    write('.gitattributes', '*.txt text eol=lf\n')
    write('crlf.txt', 'a\r\nb\r\n')
    write('run.sh', '#!/bin/sh\n')
    chmodSync(join(root, 'run.sh'), 0o755)
    execFileSync('git', ['add', 'src/sums.py'], { cwd: root })
    const index = readFileSync(join(root, '.git/index'))
    const head = readFileSync(join(root, '.git/HEAD'))
    await agent.ok('snapshot_create', { name: 'all', description: 'first' })
    rmSync(join(root, 'crlf.txt'))
    rmSync(join(root, 'build'), { recursive: true })
    chmodSync(join(root, 'run.sh'), 0o644)
    write('later.txt', 'new\n')
    const { diff } = await agent.ok<{ diff: string }>('snapshot_diff', { name: 'all' })
    for (const part of ['crlf.txt', 'build/out.py', 'old mode 100755', '+new']) expect(diff).toContain(part)
    const { changed } = await agent.ok<{ changed: string[] }>('snapshot_restore', { name: 'all' })
    expect(changed).toEqual(expect.arrayContaining(['D\tlater.txt', 'A\tcrlf.txt', 'A\tbuild/out.py']))
    expect(readFileSync(join(root, 'crlf.txt'), 'utf8')).toBe('a\r\nb\r\n')
    expect(statSync(join(root, 'run.sh')).mode & 0o777).toBe(0o755)
    expect(existsSync(join(root, 'later.txt'))).toBe(false)
    expect(readFileSync(join(root, '.git/index'))).toEqual(index)
    expect(readFileSync(join(root, '.git/HEAD'))).toEqual(head)
    expect(execFileSync('git', ['for-each-ref'], { cwd: root, encoding: 'utf8' })).toBe('')
    expect(await agent.ok('snapshot_list')).toMatchObject({ snapshots: [{ name: 'all', description: 'first' }] })
  })

  it('is refused by name, and without git', async () => {
    for (const name of ['-x', '.x', 'a/b', 'a..b', 'x.lock', '']) {
      expect(await agent.refused('snapshot_create', { name })).toMatch(/^name must/)
    }
    expect(await agent.refused('snapshot_restore', { name: 'none' })).toMatch(/^unknown snapshot: none; snapshots: all/)
    expect(await bare.refused('snapshot_create', { name: 'x' })).toMatch(/^git is not installed in this sandbox/)
  })
})

describe('code intelligence', () => {
  it('lists symbols with their lines', async () => {
    const symbols = async (file_path: string, from = bare) =>
      (
        await from.ok<{
          symbols: { name: string; kind: string; line: number; last: number; container: string | null }[]
        }>('symbols', { file_path })
      ).symbols.map(({ name, kind, line, last, container }) => [name, kind, line, last, container])
    expect(await symbols('src/sums.py')).toEqual([
      ['add', 'function', 4, 6, null],
      ['Ledger', 'class', 9, 11, null],
      ['total', 'method', 10, 11, 'Ledger'],
    ])
    expect(await symbols('src/main.go')).toEqual([
      ['Box', 'type', 5, 7, null],
      ['Size', 'method', 9, 11, '*Box'],
      ['main', 'function', 13, 15, null],
    ])
    expect(await symbols('src/shop.ts')).toEqual([
      ['Shop', 'class', 3, 7, null],
      ['open', 'method', 4, 6, 'Shop'],
      ['price', 'function', 9, 11, null],
    ])
    expect(await bare.refused('symbols', { file_path: '.gitignore' })).toMatch(/install universal-ctags, or use Grep/)
  })

  it('finds definitions and references by name, and says how to get exact ones', async () => {
    const at = { file_path: 'test/test_sums.py', line: 5, col: 12 }
    const definition = await bare.ok<{ places: { file: string; line: number }[]; advice: string }>('definition', at)
    expect(definition.places).toContainEqual(expect.objectContaining({ file: 'src/sums.py', line: 4 }))
    expect(definition.advice).toMatch(/no language server .* npm install -g pyright/)
    const { places } = await bare.ok<{ places: { file: string }[] }>('references', at)
    expect(places.map(({ file }) => file)).toEqual(expect.arrayContaining(['src/sums.py', 'test/test_sums.py']))
    await bare.ok('read', { file_path: 'src/sums.py' })
    expect(await bare.refused('rename', { file_path: 'src/sums.py', line: 4, col: 5, new_name: 'plus' })).toMatch(
      /npm install -g pyright/,
    )
  })

  it('ranks symbols by words, and finds tests', async () => {
    const { results } = await agent.ok<{ results: { name: string; file: string }[] }>('search_code', {
      query: 'adds numbers',
    })
    expect(results[0]).toMatchObject({ name: 'add', file: 'src/sums.py' })
    expect(await agent.ok('tests_covering', { file_path: 'src/sums.py', line: 5 })).toMatchObject({
      tests: ['test/test_sums.py'],
      word: 'add',
    })
  })

  it('changes functions by name', async () => {
    const edit = (file_path: string, how: string, name: string, text: string) =>
      agent.ok('edit_function', { file_path, how, name, text })
    expect(
      await agent.refused('edit_function', { file_path: 'src/main.go', how: 'body', name: 'main', text: 'x' }),
    ).toMatch(/Read it first/)
    for (const file_path of ['src/sums.py', 'src/main.go', 'src/shop.ts']) await agent.ok('read', { file_path })
    await edit('src/sums.py', 'body', 'Ledger.total', 'value = add(1, 2)\nreturn value')
    await edit('src/sums.py', 'signature', 'add', 'def add(a: int, b: int) -> int')
    await edit('src/sums.py', 'insert', 'total', '    def clear(self):\n        pass')
    expect(readFileSync(join(root, 'src/sums.py'), 'utf8')).toBe(
      '"""Sums."""\n\n\ndef add(a: int, b: int) -> int:\n    """Adds two numbers."""\n    return a + b\n\n\nclass Ledger:\n    def total(self):\n        value = add(1, 2)\n        return value\n\n    def clear(self):\n        pass\n',
    )
    await edit('src/main.go', 'body', '(*Box).Size', '\treturn b.n + 1')
    expect(readFileSync(join(root, 'src/main.go'), 'utf8')).toContain(
      'func (b *Box) Size() int {\n\treturn b.n + 1\n}\n',
    )
    await edit('src/shop.ts', 'signature', 'Shop.open', '  open(door: string, wide = false): void')
    expect(readFileSync(join(root, 'src/shop.ts'), 'utf8')).toContain(
      "  open(door: string, wide = false): void {\n    console.log(door, '}')\n  }\n",
    )
    expect(
      await agent.refused('edit_function', { file_path: 'src/sums.py', how: 'body', name: 'add', text: 'return (' }),
    ).toMatch(/no longer be valid Python/)
    expect(
      await agent.refused('edit_function', { file_path: 'src/sums.py', how: 'body', name: 'nope', text: 'x' }),
    ).toMatch(/functions: add, total, clear/)
  })
})

describe('a project', () => {
  it('needs a language where there are several, and the programs that it uses', async () => {
    write('go.mod', 'module x\n')
    write('package.json', '{"scripts": {"hello": "echo hi"}}')
    expect(await bare.refused('tests')).toMatch(
      /^polyglot workspace: 2 project types detected \(go, node\) — pass `language`/,
    )
    expect(await bare.refused('tests', { language: 'rust' })).toBe(
      'language "rust" not detected in workspace; detected: go, node',
    )
    expect(await bare.refused('tests', { language: 'go' })).toMatch(
      /^go is not installed in this sandbox\. Use an image with Go/,
    )
    expect(await bare.refused('lint', { language: 'go' })).toMatch(/^golangci-lint is not installed/)
    expect(await bare.refused('script', { name: 'nope', language: 'node' })).toMatch(/no script 'nope'; scripts: hello/)
    expect(await bare.refused('last_failures', {}, 'someone')).toMatch(/no tests were run yet/)
    for (const name of ['go.mod', 'package.json']) rmSync(join(root, name))
  })

  it('of Node.js reports its failures with file and line', async () => {
    const node = await startAgent(root, { PATH: `${dirname(process.execPath)}:/usr/bin:/bin` })
    try {
      write('package.json', '{"type": "module"}')
      write(
        'sum.test.mjs',
        "import test from 'node:test'\nimport assert from 'node:assert'\n\ntest('adds', () => {\n  assert.equal(1 + 1, 3)\n})\ntest('passes', () => {})\n",
      )
      const report = await node.ok<{ exit: number; findings: { file: string; line: number; test: string }[] }>(
        'tests',
        { language: 'node' },
      )
      expect(report.exit).toBe(1)
      expect(report.findings).toEqual([
        expect.objectContaining({ test: 'adds', file: expect.stringMatching(/sum\.test\.mjs$/) }),
      ])
      write('sum.test.mjs', "import test from 'node:test'\ntest('adds', () => {})\n")
      expect(await node.ok('tests', { language: 'node' })).toMatchObject({ exit: 0, findings: [] })
    } finally {
      await node.agent.close()
    }
  })
})
