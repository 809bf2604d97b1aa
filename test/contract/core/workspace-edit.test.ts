import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startAgent, type TestAgent } from '../../support/agent-process.ts'

const root = mkdtempSync(join(tmpdir(), 'glovebox-edit-'))
let agent: TestAgent

beforeAll(async () => {
  agent = await startAgent(root)
})
afterAll(async () => {
  await agent.agent.close()
  rmSync(root, { recursive: true, force: true })
})

const path = (name: string) => join(root, name)
const bytes = (name: string) => readFileSync(path(name), 'latin1')
const edit = (name: string, old_string: string, new_string: string, more = {}) =>
  agent.ok('edit', { file_path: name, edits: [{ old_string, new_string, ...more }] })
const refusedEdit = (name: string, old_string: string, new_string = 'x', reader = 'a') =>
  agent.refused('edit', { file_path: name, edits: [{ old_string, new_string }] }, reader)

async function file(name: string, content: string | Buffer): Promise<string> {
  writeFileSync(path(name), content)
  await agent.ok('read', { file_path: name })
  return name
}

describe('an edit', () => {
  it('needs a file that the same reader has read', async () => {
    writeFileSync(path('unread.txt'), 'a')
    expect(await refusedEdit('unread.txt', 'a')).toBe('refusing to edit unread.txt: Read it first')
    await agent.ok('read', { file_path: 'unread.txt' }, 'other')
    expect(await refusedEdit('unread.txt', 'a')).toBe('refusing to edit unread.txt: Read it first')
    expect(await agent.refused('write', { file_path: 'unread.txt', content: 'x' })).toBe(
      'refusing to overwrite unread.txt: Read it first',
    )
  })

  it('replaces a unique text literally', async () => {
    const name = await file('literal.txt', 'price: 1\n')
    expect(await edit(name, '1', "$& $1 $$ \\1 $'")).toMatchObject({ count: 1, path: name })
    expect(bytes(name)).toBe("price: $& $1 $$ \\1 $'\n")
  })

  it('refuses a text that is not unique, is empty or is not there', async () => {
    const name = await file('twice.txt', 'one two one\n')
    expect(await refusedEdit(name, 'one')).toBe(
      'old_string matched 2 times in twice.txt; add context to make it unique or set replace_all=true',
    )
    expect(await refusedEdit(name, '')).toBe('old_string must be non-empty')
    expect(await refusedEdit(name, 'three')).toMatch(/^old_string not found in twice\.txt/)
    expect(await refusedEdit(name, 'two', 'two')).toMatch(/are equal/)
    expect(await edit(name, 'one', 'three', { replace_all: true })).toMatchObject({ count: 2 })
    expect(bytes(name)).toBe('three two three\n')
  })

  it('keeps every byte that it does not replace', async () => {
    for (const [name, before, old, replacement, after] of [
      ['crlf.txt', 'a\r\nb\r\nc\r\n', 'a\nb', 'x\ny\nz', 'x\r\ny\r\nz\r\nc\r\n'],
      ['crlf-line.txt', 'a\r\nb\r\n', 'b', 'b1\nb2', 'a\r\nb1\r\nb2\r\n'],
      ['mixed.txt', 'a\r\nb\nc\r\n', 'b\n', 'x\n', 'a\r\nx\nc\r\n'],
      ['no-end.txt', 'a\nb', 'b', 'c', 'a\nc'],
      ['bom.txt', '\xef\xbb\xbfa\n', 'a', 'b', '\xef\xbb\xbfb\n'],
      ['tabs.txt', '\ta\n    a\n', '\ta', '\tb', '\tb\n    a\n'],
      ['invalid.txt', '\xff\xfea1\x80', 'a1', 'b2', '\xff\xfeb2\x80'],
      ['cr.txt', 'a\rb\r', 'b\r', 'c\r', 'a\rc\r'],
    ] as const) {
      writeFileSync(path(name), before, 'latin1')
      if (name !== 'invalid.txt') await agent.ok('read', { file_path: name })
      else {
        writeFileSync(path(name), `x${before}`, 'latin1')
        await agent.ok('read', { file_path: name })
      }
      await edit(name, old, replacement)
      expect(bytes(name), name).toBe(name === 'invalid.txt' ? `x${after}` : after)
    }
  })

  it('keeps permissions', async () => {
    const name = await file('script.sh', '#!/bin/sh\necho a\n')
    chmodSync(path(name), 0o750)
    await edit(name, 'echo a', 'echo b')
    expect(statSync(path(name)).mode & 0o7777).toBe(0o750)
  })

  it('names what is nearly there', async () => {
    const name = await file('near.py', 'def f():\n\treturn “quoted”\n\nx\u00a0= 1\n')
    expect(await refusedEdit(name, '    return “quoted”')).toMatch(/line 2 with other white space/)
    expect(await refusedEdit(name, '\treturn "quoted"')).toMatch(/near line 2 .*look alike/)
    expect(await refusedEdit(name, 'x = 1')).toMatch(/near line 4 .*look alike/)
    expect(await refusedEdit(name, '1\tdef f():')).toMatch(/line numbers as Read shows them/)
    expect(bytes(name)).toContain('def f()')
  })

  it('is refused after the file has changed, but not after a touch or chmod', async () => {
    const name = await file('behind.txt', 'one\n')
    utimesSync(path(name), 1, 1)
    chmodSync(path(name), 0o600)
    await edit(name, 'one', 'two')
    const { atime, mtime } = statSync(path(name))
    writeFileSync(path(name), 'six\n')
    // The size and the time are the same as before.
    utimesSync(path(name), atime, mtime)
    expect(await refusedEdit(name, 'six')).toMatch(/has changed since it was read/)
    expect(await agent.refused('write', { file_path: name, content: 'x' })).toMatch(/has changed since it was read/)
    expect(bytes(name)).toBe('six\n')
  })

  it('applies several replacements, or none', async () => {
    const name = await file('multi.txt', 'a b c\n')
    const edits = [
      { old_string: 'a', new_string: 'b' },
      { old_string: 'b b', new_string: 'd' },
    ]
    expect(await agent.ok('edit', { file_path: name, edits })).toMatchObject({ count: 2 })
    expect(bytes(name)).toBe('d c\n')
    const failing = [
      { old_string: 'd', new_string: 'e' },
      { old_string: 'zzz', new_string: 'y' },
    ]
    expect(await agent.refused('edit', { file_path: name, edits: failing })).toMatch(
      /^edit 2 of 2: .*No edit was applied/,
    )
    expect(bytes(name)).toBe('d c\n')
  })

  it('works on files of 50 MB', async () => {
    const name = await file('large.txt', `${'x'.repeat(99)}\n`.repeat(500_000))
    const { text } = await agent.ok<{ text: string }>('read', { file_path: name, offset: 499_999, limit: 1 })
    expect(text).toMatch(/^499999\tx{99}\n/)
    writeFileSync(path(name), 'needle\n', { flag: 'a' })
    await agent.ok('read', { file_path: name, limit: 1 })
    await edit(name, 'needle', 'thread')
    expect(statSync(path(name)).size).toBe(50_000_007)
    rmSync(path(name))
  })

  it('of many callers at once loses nothing', async () => {
    const name = await file('counter.txt', Array.from({ length: 40 }, (_, n) => `slot ${n}.\n`).join(''))
    await Promise.all(Array.from({ length: 40 }, (_, n) => edit(name, `slot ${n}.`, `done ${n}.`)))
    expect(bytes(name)).toBe(Array.from({ length: 40 }, (_, n) => `done ${n}.\n`).join(''))
  })
})

describe('a written file', () => {
  it('is new, or as it was read, and its directories are created', async () => {
    expect(await agent.ok('write', { file_path: 'new/dir/a.txt', content: 'ä' })).toMatchObject({ bytes: 2 })
    // It is known now.
    await agent.ok('write', { file_path: 'new/dir/a.txt', content: 'b' })
    expect(bytes('new/dir/a.txt')).toBe('b')
    expect(await agent.refused('write', { file_path: 'new', content: 'b' })).toMatch(/path is a directory/)
  })

  it('is checked where a fast checker is there', async () => {
    const { findings } = await agent.ok<{ findings: object[] }>('write', {
      file_path: 'bad.py',
      content: 'def f(:\n  pass\n',
    })
    expect(findings).toEqual([expect.objectContaining({ file: 'bad.py', line: 1, rule: 'syntax' })])
    const json = await agent.ok<{ findings: object[] }>('write', { file_path: 'bad.json', content: '{"a": 1,}' })
    expect(json.findings).toEqual([expect.objectContaining({ line: 1 })])
    expect(await agent.ok('write', { file_path: 'good.py', content: 'x = 1\n' })).toMatchObject({ findings: [] })
  })
})

describe('calls at once', () => {
  it('are all answered by a limited number of threads, which later calls use again', async () => {
    await file('many', 'text\n')
    for (let round = 0; round < 5; round += 1) {
      const replies = await Promise.all(Array.from({ length: 60 }, () => agent.ok('read', { file_path: 'many' })))
      expect(replies).toHaveLength(60)
    }
    const { text } = (await agent.ok('bash', { command: 'grep Threads: /proc/$PPID/status', timeout: 10 })) as {
      text: string
    }
    // 32 for calls, one that receives, and one that stops idle language servers.
    expect(Number(/\d+/.exec(text)?.[0])).toBeLessThanOrEqual(34)
  })
})
