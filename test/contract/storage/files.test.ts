import { execFileSync, spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import {
  chmodSync,
  closeSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { deletePath } from '../../../src/storage/deletion.ts'
import { makeDirectory, movePath, readFile, statPath, writeFile } from '../../../src/storage/files.ts'
import { listDirectory } from '../../../src/storage/listing.ts'
import { contentOf, mib, textAt, zeros } from '../../support/storage-fixture.ts'

/** A directory on this host replaces the root of a filesystem: nothing here depends on its type. */
let dir: string
let root: number
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'glovebox-files-'))
  root = openSync(dir, 'r')
})
afterEach(() => {
  closeSync(root)
  rmSync(dir, { recursive: true, force: true })
})

const at = (...names: string[]) => join(dir, ...names)
const reserved = (n: number) => at(`.glovebox-${n}`)
const bytesOf = (text: string) => [Buffer.from(text)]

describe.skipIf(process.getuid?.() !== 0)('writing a file', () => {
  it('creates missing directories, and gives all of it to the user of jails', async () => {
    expect(await writeFile(root, 'a/b/c.txt', bytesOf('text'))).toBe(4)
    expect(readFileSync(at('a/b/c.txt'), 'utf8')).toBe('text')
    for (const path of ['a', 'a/b', 'a/b/c.txt']) expect(statSync(at(path))).toMatchObject({ uid: 1000, gid: 1000 })
    expect([statSync(at('a')).mode & 0o7777, statSync(at('a/b/c.txt')).mode & 0o7777]).toEqual([0o755, 0o644])
  })

  it('replaces the earlier file atomically', async () => {
    await writeFile(root, 'f', bytesOf('earlier'))
    let seen = ''
    await writeFile(
      root,
      'f',
      (function* () {
        yield Buffer.from('lat')
        seen = readFileSync(at('f'), 'utf8')
        yield Buffer.from('er')
      })(),
    )
    expect([seen, readFileSync(at('f'), 'utf8'), readdirSync(dir)]).toEqual(['earlier', 'later', ['f']])
  })

  it('keeps the permissions of the file that it replaces, without set-user-ID', async () => {
    await writeFile(root, 'f', bytesOf('earlier'))
    chmodSync(at('f'), 0o4750)
    await writeFile(root, 'f', bytesOf('later'))
    const { mode, uid } = statSync(at('f'))
    expect([readFileSync(at('f'), 'utf8'), (mode & 0o7777).toString(8), uid]).toEqual(['later', '750', 1000])
  })

  it('keeps the earlier file, and nothing else, when its source fails', async () => {
    await writeFile(root, 'f', bytesOf('earlier'))
    const broken = (function* () {
      yield Buffer.from('half')
      throw new Error('the sender is gone')
    })()
    await expect(writeFile(root, 'f', broken)).rejects.toThrow('the sender is gone')
    expect([readFileSync(at('f'), 'utf8'), readdirSync(dir)]).toEqual(['earlier', ['f']])
  })

  it('uses the next reserved name when code in a sandbox has taken one, and modifies nothing existing', async () => {
    for (let n = 0; n < 31; n++) {
      if (n % 4 === 0) writeFileSync(reserved(n), 'theirs')
      if (n % 4 === 1) symlinkSync('/etc/hostname', reserved(n))
      if (n % 4 === 2) mkdirSync(reserved(n))
      if (n % 4 === 3) linkSync(reserved(n - 3), reserved(n))
    }
    const before = readdirSync(dir).sort()
    for (let round = 0; round < 40; round++) {
      await writeFile(root, 'f', bytesOf(`${round}`))
      await writeFile(root, `d${round}/e/f`, bytesOf(`${round}`))
      expect([readFileSync(at('f'), 'utf8'), readFileSync(at(`d${round}/e/f`), 'utf8')]).toEqual([
        `${round}`,
        `${round}`,
      ])
      expect(lstatSync(at('f')).isFile()).toBe(true)
    }
    expect(
      readdirSync(dir)
        .sort()
        .filter((name) => name.startsWith('.')),
    ).toEqual(before)
    expect(readFileSync(reserved(0), 'utf8')).toBe('theirs')
  })

  it('is rejected with the remedy while every reserved name is taken, and keeps the earlier file', async () => {
    await writeFile(root, 'f', bytesOf('earlier'))
    for (let n = 0; n < 32; n++) symlinkSync('/etc/hostname', reserved(n))
    await expect(writeFile(root, 'f', bytesOf('later'))).rejects.toMatchObject({ code: 'reserved_names_taken' })
    await expect(makeDirectory(root, 'd')).rejects.toMatchObject({ code: 'reserved_names_taken' })
    expect([readFileSync(at('f'), 'utf8'), existsSync(at('d'))]).toEqual(['earlier', false])
    await writeFile(root, 'new', bytesOf('needs no other name'))
    await deletePath(root, '.glovebox-17', false)
    await writeFile(root, 'f', bytesOf('later'))
    expect([readFileSync(at('f'), 'utf8'), existsSync(reserved(17))]).toEqual(['later', false])
  })

  it('never creates a file under a reserved name', async () => {
    await writeFile(root, 'f', bytesOf('text'))
    const ways = [
      (path: string) => writeFile(root, path, bytesOf('')),
      (path: string) => makeDirectory(root, path),
      (path: string) => movePath(root, 'f', path, true),
    ]
    for (const path of ['.glovebox-0', './.glovebox-31', '.glovebox-7/f', '.glovebox-main.py'])
      for (const way of ways) await expect(way(path)).rejects.toMatchObject({ code: 'path_invalid' })
    await writeFile(root, 'd/.glovebox-0', bytesOf('one name of many below the root'))
    await writeFile(root, '.glovebox-32', bytesOf('and so is this'))
  })

  it('keeps the last of many parallel writes, also in new directories', async () => {
    const texts = Array.from({ length: 30 }, (_, n) => `${n}`.repeat(1_000 + n))
    await Promise.all(texts.map((text) => writeFile(root, 'new/deep/f', bytesOf(text))))
    expect(texts).toContain(readFileSync(at('new/deep/f'), 'utf8'))
    await Promise.all(texts.map((text, n) => writeFile(root, `other/${n}/f`, bytesOf(text))))
    expect(readdirSync(at('other'))).toHaveLength(30)
    expect([readdirSync(at('new')), readdirSync(at('new/deep'))]).toEqual([['deep'], ['f']])
  })

  it('keeps every byte of binary content, and any name', async () => {
    const bytes = randomBytes(700_001)
    const names = [
      'ü/日本語/👩‍👩‍👧',
      ' spaces ',
      'new\nline',
      '-rf',
      '..hidden',
      '...',
      'x'.repeat(255),
      'back\\slash',
      '%2e%2e',
    ]
    for (const name of names) {
      await writeFile(root, name, [bytes.subarray(0, 300_000), bytes.subarray(300_000)])
      expect((await contentOf(await readFile(root, name))).equals(bytes)).toBe(true)
    }
  })
})

describe('reading a file', () => {
  it('returns the requested range', async () => {
    writeFileSync(at('f'), '0123456789')
    const text = async (offset: number, lengthBytes: number) =>
      (await contentOf(await readFile(root, 'f', { offset, lengthBytes }))).toString()
    expect([await text(0, 3), await text(8, 100), await text(10, 1), await text(3, 0)]).toEqual(['012', '89', '', ''])
    for (const offset of [11, -1, 0.5, Number.NaN])
      await expect(readFile(root, 'f', { offset, lengthBytes: 1 })).rejects.toMatchObject({ code: 'range_invalid' })
  })

  it('uses little memory, whatever the size of the file, and returns zeros for holes', async () => {
    writeFileSync(at('huge'), 'start')
    truncateSync(at('huge'), 1024 * 1024 * mib)
    const file = await readFile(root, 'huge')
    expect([file.lengthBytes, file.status.allocatedBytes < mib]).toEqual([1024 * 1024 * mib, true])
    const before = process.memoryUsage.rss()
    let seen = 0
    for await (const chunk of file.bytes) {
      seen += chunk.byteLength
      if (seen > 256 * mib) break
    }
    expect(process.memoryUsage.rss() - before).toBeLessThan(128 * mib)
    const end = await contentOf(await readFile(root, 'huge', { offset: 1024 * 1024 * mib - 8, lengthBytes: 8 }))
    expect(end.equals(Buffer.alloc(8))).toBe(true)
  })

  it('closes the file when its reader stops early', async () => {
    writeFileSync(at('f'), Buffer.alloc(2 * mib))
    const open = () => readdirSync('/proc/self/fd').length
    const before = open()
    for (let n = 0; n < 20; n++) {
      const file = await readFile(root, 'f')
      for await (const _ of file.bytes) break
      await (await readFile(root, 'f')).close()
    }
    expect(open()).toBe(before)
  })
})

describe('an entry that is neither file nor directory', () => {
  it('is listed by its kind, and neither opened nor followed nor waited for', async () => {
    writeFileSync(at('target'), 'secret')
    symlinkSync('target', at('link'))
    symlinkSync('loop', at('loop'))
    execFileSync('mkfifo', [at('fifo')])
    const server = createServer().listen(at('socket'))
    await new Promise((resolve) => server.once('listening', resolve))
    const kinds = Object.fromEntries((await listDirectory(root, '')).entries.map(({ name, kind }) => [name, kind]))
    expect(kinds).toEqual({ target: 'file', link: 'link', loop: 'link', fifo: 'fifo', socket: 'socket' })
    for (const name of ['link', 'loop', 'fifo', 'socket']) {
      await expect(readFile(root, name)).rejects.toMatchObject({ code: 'not_a_file' })
      await expect(writeFile(root, name, bytesOf('x'))).rejects.toMatchObject({ code: 'not_a_file' })
      await expect(listDirectory(root, name)).rejects.toMatchObject({ name: 'Refusal' })
      await expect(writeFile(root, `${name}/x`, bytesOf('x'))).rejects.toMatchObject({ name: 'Refusal' })
    }
    expect(readFileSync(at('target'), 'utf8')).toBe('secret')
    for (const name of ['link', 'loop', 'fifo', 'socket'])
      expect(await deletePath(root, name, true)).toEqual({ entries: 1, complete: true })
    expect(readdirSync(dir)).toEqual(['target'])
    server.close()
  })

  it.skipIf(process.getuid?.() !== 0)('is not read when it is a device, which no sandbox can create', async () => {
    execFileSync('sh', ['-c', 'mknod null c 1 3; mknod disk b 7 0; mknod console c 5 1'], { cwd: dir })
    const { entries } = await listDirectory(root, '')
    expect(entries.map(({ name, kind }) => `${name} ${kind}`).sort()).toEqual([
      'console device',
      'disk device',
      'null device',
    ])
    for (const name of ['null', 'disk', 'console']) {
      await expect(readFile(root, name)).rejects.toMatchObject({ code: 'not_a_file' })
      await expect(writeFile(root, name, bytesOf('x'))).rejects.toMatchObject({ code: 'not_a_file' })
      expect(await deletePath(root, name, false)).toEqual({ entries: 1, complete: true })
    }
  })

  it('does not block other requests, even a thousand FIFOs', async () => {
    execFileSync('sh', ['-c', 'for n in $(seq 40); do mkfifo "$0/fifo$n"; done', dir])
    writeFileSync(at('f'), 'read me')
    const refused = Array.from({ length: 40 }, (_, n) => readFile(root, `fifo${n + 1}`).catch((error) => error.code))
    expect(await textAt(root, 'f')).toBe('read me')
    expect(new Set(await Promise.all(refused))).toEqual(new Set(['not_a_file']))
  })

  it('is rejected immediately when a program holds a lease', async () => {
    writeFileSync(at('f'), 'leased')
    const lease =
      'import fcntl,sys,time,signal; signal.signal(signal.SIGIO, signal.SIG_IGN); f=open(sys.argv[1],"r+"); ' +
      'fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK); print("held", flush=True); sys.stdin.read()'
    const holder = spawn('python3', ['-c', lease, at('f')], { stdio: ['pipe', 'pipe', 'inherit'] })
    await new Promise((resolve) => holder.stdout.once('data', resolve))
    await expect(readFile(root, 'f')).rejects.toMatchObject({ code: 'file_busy' })
    holder.stdin.end()
    await new Promise((resolve) => holder.once('exit', resolve))
    expect(await textAt(root, 'f')).toBe('leased')
  })
})

describe('listing a directory', () => {
  it('continues at its cursor, and lists each name once', async () => {
    mkdirSync(at('many'))
    for (let n = 0; n < 2_500; n++) writeFileSync(at('many', `file-${n}`), '')
    const names: string[] = []
    let cursor: string | undefined
    do {
      const part = await listDirectory(root, 'many', cursor, 700)
      expect(part.entries.length).toBeLessThanOrEqual(700)
      names.push(...part.entries.map(({ name }) => name))
      cursor = part.cursor
    } while (cursor !== undefined)
    expect([names.length, new Set(names).size]).toEqual([2_500, 2_500])
  })

  it('counts names that no path can express, and deletes them with their directory', async () => {
    mkdirSync(at('odd'))
    writeFileSync(Buffer.concat([Buffer.from(at('odd/')), Buffer.of(0xff, 0xfe)]), '')
    writeFileSync(at('odd/plain'), '')
    expect(await listDirectory(root, 'odd')).toMatchObject({
      entries: [{ name: 'plain' }],
      unnamed: 1,
      cursor: undefined,
    })
    expect(await deletePath(root, 'odd', true)).toEqual({ entries: 3, complete: true })
  })

  it('rejects an invalid cursor', async () => {
    for (const cursor of ['-1', 'x', '', '1e3', '99999999999999999999'])
      await expect(listDirectory(root, '', cursor)).rejects.toMatchObject({ code: 'invalid_argument' })
  })
})

describe('moving an entry', () => {
  it('renames it, and replaces an existing one only on request', async () => {
    await writeFile(root, 'a', bytesOf('a'))
    await writeFile(root, 'b', bytesOf('b'))
    await expect(movePath(root, 'a', 'b', false)).rejects.toMatchObject({ code: 'path_exists' })
    await movePath(root, 'a', 'b', true)
    await movePath(root, 'b', 'new/place', false)
    expect([readdirSync(dir), readFileSync(at('new/place'), 'utf8')]).toEqual([['new'], 'a'])
    await expect(movePath(root, 'new', 'new/inside/itself', false)).rejects.toMatchObject({ name: 'Refusal' })
    await expect(movePath(root, 'gone', 'x', false)).rejects.toMatchObject({ code: 'path_not_found' })
  })

  it('moves a link itself', async () => {
    symlinkSync('/etc/passwd', at('link'))
    await movePath(root, 'link', 'moved', false)
    expect(lstatSync(at('moved')).isSymbolicLink()).toBe(true)
  })
})

describe('deleting', () => {
  it('rejects a directory that is not empty, unless it is recursive', async () => {
    await makeDirectory(root, 'd/e')
    await expect(deletePath(root, 'd', false)).rejects.toMatchObject({ code: 'directory_not_empty' })
    expect(await deletePath(root, 'd/e', false)).toEqual({ entries: 1, complete: true })
    await expect(deletePath(root, 'nothing', true)).rejects.toMatchObject({ code: 'path_not_found' })
    await expect(deletePath(root, '', true)).rejects.toMatchObject({ code: 'path_invalid' })
  })

  it('reaches the bottom of a tree of 10,000 levels', async () => {
    const deep =
      'import os,sys; os.chdir(sys.argv[1])\nfor n in range(10000):\n os.mkdir("d"); os.chdir("d")\nopen("f","w").write("deep")'
    execFileSync('python3', ['-c', deep, dir])
    const path = 'd/'.repeat(10_000)
    expect(await textAt(root, `${path}f`)).toBe('deep')
    expect(await statPath(root, `${path}f`)).toMatchObject({ kind: 'file', sizeBytes: 4 })
    expect(await deletePath(root, 'd', true)).toEqual({ entries: 10_001, complete: true })
    expect(readdirSync(dir)).toEqual([])
    await expect(writeFile(root, `${'d/'.repeat(400)}f`, bytesOf('x'))).rejects.toMatchObject({ code: 'path_too_deep' })
  })

  it('stops when its budget is used, and continues when called again', async () => {
    for (let n = 0; n < 50; n++) await makeDirectory(root, `d/${n}/x`)
    let calls = 1
    for (; !(await deletePath(root, 'd', true, 40)).complete; calls++) expect(calls).toBeLessThan(10)
    expect([calls, existsSync(at('d'))]).toEqual([3, false])
  })

  it('removes a tree whose directories deny access to their owner', async () => {
    await makeDirectory(root, 'd/closed')
    chmodSync(at('d/closed'), 0)
    expect(await deletePath(root, 'd', true)).toEqual({ entries: 2, complete: true })
  })

  it('keeps the other name of a hard link', async () => {
    await writeFile(root, 'one', bytesOf('shared'))
    linkSync(at('one'), at('two'))
    await deletePath(root, 'one', false)
    await writeFile(root, 'three', bytesOf('x'))
    expect(await textAt(root, 'two')).toBe('shared')
  })
})

describe('a large file', () => {
  it('is stored and returned unchanged', async () => {
    const hash = createHash('sha256')
    for (const chunk of zeros(64 * mib)) hash.update(chunk)
    await writeFile(root, 'large', zeros(64 * mib))
    const back = createHash('sha256')
    for await (const chunk of (await readFile(root, 'large')).bytes) back.update(chunk)
    expect(back.digest('hex')).toBe(hash.digest('hex'))
  })
})
