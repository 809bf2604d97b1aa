import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ChangeDetector } from '../../../src/storage/changes.ts'

/** A directory on this host replaces the root of a filesystem: nothing here depends on its type. */
let dir: string
let root: number
let changes: ChangeDetector
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'glovebox-changes-'))
  root = openSync(dir, 'r')
  changes = new ChangeDetector()
})
afterEach(() => {
  closeSync(root)
  rmSync(dir, { recursive: true, force: true })
})

const write = (path: string, bytes: string | Uint8Array) => writeFileSync(join(dir, path), bytes)
const since = (startMs: number) => changes.since('key', 'thread', root, startMs)
const paths = async (startMs: number) => (await since(startMs)).changed.map(({ path }) => path)
const sha256 = (bytes: string | Uint8Array) => createHash('sha256').update(bytes).digest('hex')
/** Longer than any tick of the kernel clock. */
const aTick = () => sleep(30)

describe('the changes of a run', () => {
  it('are the files that it created or changed, with size, hash and media type', async () => {
    write('old', 'as it was')
    write('grown', 'a')
    await aTick()
    const startMs = Date.now()
    mkdirSync(join(dir, 'out'))
    write('out/notes.txt', 'ä'.repeat(3000))
    write('out/empty', '')
    write('grown', 'ab')
    const png = Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), Buffer.alloc(9)])
    write('plot', png)
    write('data.txt', Buffer.of(0, 1, 2))
    write('song', 'ID3tag')
    expect(await since(startMs)).toEqual({
      threadId: 'thread',
      truncated: false,
      changed: [
        {
          path: 'data.txt',
          sizeBytes: 3,
          sha256: sha256(Buffer.of(0, 1, 2)),
          kind: 'binary',
          mimeType: 'application/octet-stream',
        },
        { path: 'grown', sizeBytes: 2, sha256: sha256('ab'), kind: 'text', mimeType: 'text/plain' },
        { path: 'out/empty', sizeBytes: 0, sha256: sha256(''), kind: 'text', mimeType: 'text/plain' },
        {
          path: 'out/notes.txt',
          sizeBytes: 6000,
          sha256: sha256('ä'.repeat(3000)),
          kind: 'text',
          mimeType: 'text/plain',
        },
        { path: 'plot', sizeBytes: png.length, sha256: sha256(png), kind: 'image', mimeType: 'image/png' },
        { path: 'song', sizeBytes: 6, sha256: sha256('ID3tag'), kind: 'audio', mimeType: 'audio/mpeg' },
      ],
    })
  })

  it('are detected whatever timestamps a program sets', async () => {
    const startMs = Date.now()
    write('forged', 'x')
    utimesSync(join(dir, 'forged'), 1, 1)
    expect(await paths(startMs)).toEqual(['forged'])
  })

  it('are reported once, also when the next run starts within the same tick', async () => {
    const firstMs = Date.now()
    write('first', 'x')
    write('counter', '1')
    expect(await paths(firstMs)).toEqual(['counter', 'first'])
    const secondMs = Date.now()
    write('counter', '2')
    expect(await paths(secondMs)).toEqual(['counter'])
    expect(await paths(Date.now())).toEqual([])
  })

  it('do not include what was uploaded just before', async () => {
    write('uploaded', 'x')
    changes.wrote('key')
    await changes.settle('key', 'thread', root)
    const startMs = Date.now()
    write('made', 'x')
    expect(await paths(startMs)).toEqual(['made'])
  })

  it('omit cache and temporary files', async () => {
    const startMs = Date.now()
    for (const name of ['__pycache__', '.cache', '.local', 'node_modules', 'kept']) {
      mkdirSync(join(dir, name))
      write(`${name}/file`, 'x')
    }
    write('.profile', 'x')
    expect(await paths(startMs)).toEqual(['.profile', 'kept/file'])
  })

  it('follow no link, and open only regular files', async () => {
    const startMs = Date.now()
    symlinkSync('/etc', join(dir, 'etc'))
    symlinkSync('/etc/passwd', join(dir, 'passwd'))
    execFileSync('mkfifo', [join(dir, 'fifo')])
    expect(await since(startMs)).toMatchObject({ changed: [], truncated: false })
  })

  it('have no hash when a file is larger than the limit, sparse or not', async () => {
    const startMs = Date.now()
    write('sparse', 'begins as text')
    truncateSync(join(dir, 'sparse'), 2 ** 40)
    expect((await since(startMs)).changed).toMatchObject([{ path: 'sparse', sizeBytes: 2 ** 40, sha256: null }])
  })

  it('support every Unicode name; names that are not text count as omitted', async () => {
    const startMs = Date.now()
    write('ü\n-rf *', 'x')
    writeFileSync(Buffer.concat([Buffer.from(`${dir}/`), Buffer.of(0xff, 0xfe)]), 'x')
    expect(await since(startMs)).toMatchObject({ changed: [{ path: 'ü\n-rf *' }], truncated: true })
  })

  it('are marked truncated when there are too many files or directories', async () => {
    const startMs = Date.now()
    for (let i = 0; i < 300; i++) write(`f${i}`, '')
    const many = await since(startMs)
    expect([many.changed.length, many.truncated]).toEqual([256, true])
    let deep = join(dir, 'd')
    for (let i = 0; i < 70; i++) deep = join(deep, 'd')
    mkdirSync(deep, { recursive: true })
    writeFileSync(join(deep, 'file'), 'x')
    await aTick()
    expect(await since(Date.now())).toMatchObject({ changed: [], truncated: true })
  })

  it('are found under paths up to the maximum length', async () => {
    const startMs = Date.now()
    const directory = Array.from({ length: 15 }, () => 'n'.repeat(240)).join('/')
    mkdirSync(join(dir, directory), { recursive: true })
    write(`${directory}/f`, 'deep')
    expect(await since(startMs)).toMatchObject({ changed: [{ path: `${directory}/f`, sizeBytes: 4 }] })
  })
})
