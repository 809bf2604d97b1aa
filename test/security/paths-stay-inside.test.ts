// Promise: no path leads the runner out of a thread or volume, whatever code in a sandbox creates or changes there.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { readFile as readByName, writeFile as writeByName } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Refusal } from '../../src/base/errors.ts'
import { deletePath } from '../../src/storage/deletion.ts'
import { makeDirectory, movePath, readFile, statPath, writeFile } from '../../src/storage/files.ts'
import { listDirectory } from '../../src/storage/listing.ts'

const secret = 'SECRET of the host'
let dir: string
let root: number

/** inside/ is full of traps that a sandbox made; outside/ is the host. */
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'glovebox-paths-'))
  mkdirSync(join(dir, 'outside/deep'), { recursive: true })
  writeFileSync(join(dir, 'outside/secret'), secret)
  writeFileSync(join(dir, 'outside/deep/secret'), secret)
  mkdirSync(join(dir, 'inside'))
  setTraps()
  root = openSync(join(dir, 'inside'), 'r')
})
afterEach(() => {
  closeSync(root)
  rmSync(dir, { recursive: true, force: true })
})

function setTraps(): void {
  const at = (name: string) => join(dir, 'inside', name)
  mkdirSync(at('real'))
  writeFileSync(at('real/file'), 'mine')
  symlinkSync(join(dir, 'outside'), at('absolute'))
  symlinkSync('../outside', at('relative'))
  symlinkSync('../outside/secret', at('file'))
  symlinkSync('../outside/made', at('dangling'))
  symlinkSync('/proc/self/root', at('magic'))
  symlinkSync('/proc/self/fd', at('descriptors'))
  symlinkSync('..', at('up'))
  symlinkSync('loop', at('loop'))
  symlinkSync('../../outside', at('real/below'))
  execFileSync('mkfifo', [at('fifo')])
}

/** Everything outside that could be changed. */
const outside = () =>
  readdirSync(join(dir, 'outside'), { recursive: true, encoding: 'utf8' })
    .sort()
    .map((name) => {
      const path = join(dir, 'outside', name)
      const { ino, mode, uid, nlink } = statSync(path)
      return [name, ino, mode, uid, nlink, statSync(path).isFile() ? readFileSync(path, 'utf8') : '']
    })

type Act = (path: string, other: string) => Promise<unknown>

const acts: Readonly<Record<string, Act>> = {
  stat: (path) => statPath(root, path),
  list: (path) => listDirectory(root, path),
  read: async (path) => {
    const file = await readFile(root, path)
    const chunks: Uint8Array[] = []
    for await (const chunk of file.bytes) chunks.push(chunk)
    return Buffer.concat(chunks).toString()
  },
  write: (path) => writeFile(root, path, [Buffer.from('written')]),
  make: (path) => makeDirectory(root, path),
  move: (path, other) => movePath(root, path, other, true),
  delete: (path) => deletePath(root, path, true),
}

async function attempt(act: Act, path: string, other: string): Promise<unknown> {
  try {
    return await act(path, other)
  } catch (error) {
    if (error instanceof Refusal) return error.code
    throw error
  }
}

const component = fc.oneof(
  fc.constantFrom(
    ...['absolute', 'relative', 'file', 'dangling', 'magic', 'descriptors', 'up', 'loop', 'real', 'below', 'fifo'],
    ...[
      'outside',
      'secret',
      'deep',
      '..',
      '.',
      '',
      'root',
      'etc',
      '0',
      'x'.repeat(300),
      'a\0b',
      '..\\..',
      '%2e%2e',
      '\ud800',
    ],
  ),
  fc.string({ unit: 'binary', maxLength: 12 }),
)
const path = fc
  .tuple(fc.constantFrom('', '', '', '/', './', '../'), fc.array(component, { maxLength: 5 }))
  .map(([start, names]) => start + names.join('/'))

describe('a path', () => {
  it('leads outside when it is opened by name', async () => {
    expect(await readByName(join(dir, 'inside/relative/secret'), 'utf8')).toBe(secret)
    await writeByName(join(dir, 'inside/dangling'), 'made outside')
    expect(readFileSync(join(dir, 'outside/made'), 'utf8')).toBe('made outside')
  })

  it('never leads outside, for every path and every operation', async () => {
    const before = outside()
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...Object.keys(acts)), path, path, async (act, one, other) => {
        const got = await attempt(acts[act]!, one, other)
        expect(JSON.stringify(got ?? null)).not.toContain(secret)
        expect(outside()).toEqual(before)
      }),
      { numRuns: 1_500 },
    )
    expect(readdirSync(dir).sort()).toEqual(['inside', 'outside'])
  })

  it('is rejected with the reason', async () => {
    const codes: Record<string, string> = {
      '../outside/secret': 'path_invalid',
      '/etc/passwd': 'path_invalid',
      'real/../../outside': 'path_invalid',
      'real//file': 'path_invalid',
      'a\0b': 'path_invalid',
      'x\ud800': 'path_invalid',
      ['y'.repeat(256)]: 'path_invalid',
      ['z/'.repeat(20_000)]: 'path_too_deep',
      file: 'not_a_file',
      fifo: 'not_a_file',
      real: 'not_a_file',
      'relative/secret': 'not_a_directory',
      'magic/etc/passwd': 'path_invalid',
      none: 'path_not_found',
    }
    for (const [tried, code] of Object.entries(codes))
      expect([tried, await attempt(acts.read!, tried, '')]).toEqual([tried, code])
  })
})

/** Exchanges a directory and a link to the outside, as fast as it can: renameat2(2), RENAME_EXCHANGE. */
const swapper = `
import ctypes, os, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None)
print("ready", flush=True)
while True:
    for a, b in ((b"real", b"relative"), (b"real/file", b"file"), (b"real/inner", b"absolute")):
        libc.renameat2(-100, a, -100, b, 2)
`

describe('a path whose directories are exchanged for links meanwhile', () => {
  let swap: ChildProcess
  beforeEach(async () => {
    mkdirSync(join(dir, 'inside/real/inner'))
    writeFileSync(join(dir, 'inside/real/secret'), 'mine')
    swap = spawn('python3', ['-c', swapper, join(dir, 'inside')], { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(swap.stdout!, 'data')
  })
  afterEach(async () => {
    swap.kill('SIGKILL')
    if (swap.exitCode === null && swap.signalCode === null) await once(swap, 'exit')
  })

  it('sooner or later leads outside when it is checked and then opened by name', async () => {
    let leaked = false
    for (let n = 0; n < 20_000 && !leaked; n++) {
      const checked = statSync(join(dir, 'inside/real'), { throwIfNoEntry: false })
      if (checked?.isDirectory())
        leaked = (await readByName(join(dir, 'inside/real/secret'), 'utf8').catch(() => '')) === secret
    }
    expect(leaked).toBe(true)
  })

  it('is never read, listed, written, created, moved or deleted outside', async () => {
    const before = outside()
    const targets = [
      'real/secret',
      'real/file',
      'relative/secret',
      'real/inner/secret',
      'real/inner',
      'absolute/deep/secret',
    ]
    const seen = new Map<unknown, number>()
    for (let n = 0; n < 300; n++)
      for (const [name, act] of Object.entries(acts)) {
        if (name === 'delete' && n % 10 !== 0) continue
        const target = targets[n % targets.length]!
        const got = await attempt(
          act,
          name === 'make' || name === 'write' ? `${target}-${n % 7}/x` : target,
          'real/moved',
        )
        expect(JSON.stringify(got ?? null)).not.toContain(secret)
        seen.set(typeof got === 'string' ? got : 'done', (seen.get(typeof got === 'string' ? got : 'done') ?? 0) + 1)
      }
    expect(outside()).toEqual(before)
    expect(seen.get('done') ?? 0).toBeGreaterThan(0) // Some found the directory, some the link.
    expect(seen.size).toBeGreaterThan(1)
  })

  it('is never followed during the deletion of a whole tree', async () => {
    const before = outside()
    for (let n = 0; n < 40; n++) {
      await attempt(acts.make!, `real/tree/${n}/a/b`, '')
      await attempt(acts.delete!, 'real', '')
      await attempt(acts.make!, 'real/inner', '')
    }
    expect(outside()).toEqual(before)
  })
})
