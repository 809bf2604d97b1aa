import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startAgent, type TestAgent } from '../../support/agent-process.ts'

/** A workspace, and a directory next to it that nothing in the workspace may lead to. */
const base = realpathSync(mkdtempSync(join(tmpdir(), 'glovebox-contained-')))
const root = join(base, 'workspace')
const outside = join(base, 'outside')
let agent: TestAgent

beforeAll(async () => {
  mkdirSync(join(root, 'src/deep'), { recursive: true })
  mkdirSync(outside)
  writeFileSync(join(root, 'src/a.txt'), 'inside\n')
  writeFileSync(join(outside, 'secret.txt'), 'outside\n')
  agent = await startAgent(root)
})
afterAll(async () => {
  await agent.agent.close()
  rmSync(base, { recursive: true, force: true })
})

const isOutside = /path is outside workspace root/

describe('paths of a workspace', () => {
  it('are relative to it, or absolute and below it', async () => {
    for (const path of ['src/a.txt', './src//a.txt', 'src/deep/../a.txt', join(root, 'src/a.txt')]) {
      expect(await agent.ok('read', { file_path: path })).toEqual({ text: '1\tinside\n' })
    }
  })

  it('cannot leave it with .. or an absolute path', async () => {
    for (const path of [
      '../outside/secret.txt',
      'src/../../outside/secret.txt',
      'src/deep/../../../outside/secret.txt',
      join(outside, 'secret.txt'),
      `${root}/../outside/secret.txt`,
      `${root}-other/x`,
      '/etc/passwd',
      '..',
      '/',
    ]) {
      expect(await agent.refused('read', { file_path: path })).toMatch(isOutside)
      expect(await agent.refused('write', { file_path: path, content: 'x' })).toMatch(isOutside)
      expect(await agent.refused('glob', { pattern: '*', path })).toMatch(isOutside)
      expect(await agent.refused('grep', { pattern: 'x', path })).toMatch(isOutside)
    }
    expect(readFileSync(join(outside, 'secret.txt'), 'utf8')).toBe('outside\n')
  })

  it('follow links that stay inside, and no link that leads out, at every position', async () => {
    symlinkSync('a.txt', join(root, 'src/last'))
    symlinkSync('src', join(root, 'first'))
    symlinkSync(join(root, 'src/deep'), join(root, 'absolute'))
    expect(await agent.ok('read', { file_path: 'first/last' })).toEqual({ text: '1\tinside\n' })
    expect(await agent.ok('read', { file_path: 'absolute/../a.txt' })).toEqual({ text: '1\tinside\n' })
    symlinkSync('../outside', join(root, 'out'))
    symlinkSync('../../outside/secret.txt', join(root, 'src/out.txt'))
    symlinkSync(outside, join(root, 'src/deep/out'))
    symlinkSync('out', join(root, 'chain'))
    for (const path of [
      'out/secret.txt',
      'src/out.txt',
      'first/out.txt',
      'src/deep/out/secret.txt',
      'chain/secret.txt',
    ]) {
      // A program without the protection follows them.
      expect(readFileSync(join(root, path), 'utf8')).toBe('outside\n')
      expect(await agent.refused('read', { file_path: path })).toMatch(isOutside)
      expect(await agent.refused('write', { file_path: path, content: 'x' })).toMatch(isOutside)
    }
    expect(await agent.refused('write', { file_path: 'out/new.txt', content: 'x' })).toMatch(isOutside)
    expect(await agent.refused('grep', { pattern: 'outside', path: 'out' })).toMatch(isOutside)
    expect(await agent.ok('grep', { pattern: 'outside' })).toEqual({ lines: [], partial: false })
  })

  it('end at a loop of links', async () => {
    symlinkSync('loop-b', join(root, 'loop-a'))
    symlinkSync('loop-a', join(root, 'loop-b'))
    expect(await agent.refused('read', { file_path: 'loop-a' })).toMatch(/too many symbolic links/)
  })

  it('stay inside while a directory is replaced by a link and back', async () => {
    mkdirSync(join(root, 'swap'))
    writeFileSync(join(root, 'swap/secret.txt'), 'inside\n')
    const swapper = new Worker(
      `const { renameSync, symlinkSync, unlinkSync } = require('node:fs')
       const { swap, kept, outside } = require('node:worker_threads').workerData
       for (;;) { renameSync(swap, kept); symlinkSync(outside, swap); unlinkSync(swap); renameSync(kept, swap) }`,
      { eval: true, workerData: { swap: join(root, 'swap'), kept: join(root, 'kept'), outside } },
    )
    const texts = new Set<string>()
    try {
      for (let n = 0; n < 400; n += 1) {
        const value = await agent
          .ok<{ text: string }>('read', { file_path: 'swap/secret.txt' })
          .catch((error: Error) => error.message)
        texts.add(typeof value === 'string' ? value.replace(/:.*/s, '') : value.text)
      }
    } finally {
      await swapper.terminate()
    }
    expect(texts).not.toContain('1\toutside\n')
    for (const text of texts) expect(text).toMatch(/^1\tinside\n$|^resolve path|^path not found|^too many/)
  })
})

describe('things that are no files', () => {
  it('are refused with what they are, and block nothing', async () => {
    execFileSync('mkfifo', [join(root, 'pipe')])
    const path = await agent.refused('read', { file_path: 'pipe' })
    expect(path).toMatch(/named pipe \(FIFO\)/)
    expect(await agent.refused('write', { file_path: 'pipe', content: 'x' })).toMatch(/named pipe/)
    expect(await agent.refused('read', { file_path: 'src' })).toMatch(/path is a directory: src/)
    expect(await agent.refused('read', { file_path: 'src/a.txt/x' })).toMatch(/not a directory/)
    expect(await agent.refused('read', { file_path: 'missing' })).toMatch(/path not found: missing/)
    expect(await agent.refused('read', { file_path: 'a\0b' })).toMatch(/NUL/)
    // A search does not wait for the pipe.
    expect(await agent.ok('grep', { pattern: 'inside', path: 'src' })).toMatchObject({ partial: false })
  })

  it.skipIf(process.getuid?.() !== 0)('are refused when they are devices', async () => {
    execFileSync('mknod', [join(root, 'null'), 'c', '1', '3'])
    expect(await agent.refused('read', { file_path: 'null' })).toMatch(/character device/)
  })

  it('include directories that cannot be read, which searches leave out', async () => {
    mkdirSync(join(root, 'closed'))
    writeFileSync(join(root, 'closed/a.txt'), 'hidden\n')
    chmodSync(join(root, 'closed'), 0)
    expect(await agent.ok('glob', { pattern: '**/a.txt' })).toMatchObject({ partial: false })
    chmodSync(join(root, 'closed'), 0o755)
  })

  it('include trees that are deeper than a path can be', async () => {
    const deep = 'd/'.repeat(1_200)
    await agent.ok('write', { file_path: `${deep}end.txt`, content: 'deep' })
    expect(await agent.ok('read', { file_path: `${deep}end.txt` })).toEqual({ text: '1\tdeep\n' })
    expect(await agent.refused('read', { file_path: 'x'.repeat(300) })).toMatch(/too long/)
    rmSync(join(root, 'd'), { recursive: true })
  })
})

describe('content', () => {
  it('of a huge sparse file is read in part', async () => {
    execFileSync('truncate', ['-s', '8G', join(root, 'huge.bin')])
    expect(await agent.refused('read', { file_path: 'huge.bin' })).toMatch(/binary file of 8589934592 bytes/)
    writeFileSync(join(root, 'long.txt'), 'line\n'.repeat(14_000_000))
    const { text } = await agent.ok<{ text: string }>('read', { file_path: 'long.txt', offset: 13_000_000, limit: 2 })
    expect(text).toMatch(/^13000000\tline\n13000001\tline\n/)
    expect(
      await agent.refused('edit', { file_path: 'long.txt', edits: [{ old_string: 'a', new_string: 'b' }] }),
    ).toMatch(/more than 67108864 bytes cannot be edited/)
    rmSync(join(root, 'long.txt'))
    rmSync(join(root, 'huge.bin'))
  })

  it('that is not text is refused with what it is, and images are shown', async () => {
    const png = Buffer.from(
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
      'base64',
    )
    writeFileSync(join(root, 'dot.png'), png)
    expect(await agent.ok('read', { file_path: 'dot.png' })).toEqual({
      image: png.toString('base64'),
      mime: 'image/png',
    })
    for (const [bytes, name] of [
      [Buffer.from('\x7fELF\0\0'), 'an ELF program'],
      [Buffer.from('PK\x03\x04rest'), 'a ZIP archive'],
      [Buffer.from('%PDF-1.7'), 'a PDF document'],
      [Buffer.from('a\0b'), 'a binary file'],
      [Buffer.from('\ufeffa', 'utf16le'), 'text in UTF-16'],
    ] as const) {
      writeFileSync(join(root, 'x.bin'), bytes)
      expect(await agent.refused('read', { file_path: 'x.bin' })).toContain(name)
    }
  })

  it('of notebooks is returned as cells', async () => {
    const cells = [
      { cell_type: 'markdown', source: ['# Title\n', 'text'] },
      { cell_type: 'code', source: 'print(1)', outputs: [{ output_type: 'stream', text: ['1\n'] }] },
    ]
    writeFileSync(join(root, 'n.ipynb'), JSON.stringify({ cells }))
    const { text } = await agent.ok<{ text: string }>('read', { file_path: 'n.ipynb' })
    expect(text.replaceAll(/^\d+\t/gm, '')).toBe(
      '<cell 1 markdown>\n# Title\ntext\n<cell 2 code>\nprint(1)\n<output>\n1\n\n',
    )
  })
})
