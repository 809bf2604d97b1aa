/**
 * Many threads, few of them mounted: the cost of an idle thread, and whether the number of the others matters to it.
 *   node bench/many-threads.ts [COUNT]
 */
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readFile, writeFile } from '../src/storage/files.ts'
import type { FilesystemId } from '../src/storage/filesystem-id.ts'
import { Filesystems } from '../src/storage/filesystems.ts'
import { MountCache } from '../src/storage/mount-cache.ts'
import { quantile } from './figures.ts'
import { inOwnMountNamespace } from './mount-namespace.ts'
import { type StorageFigure, storageTable } from './storage.ts'

export interface ManyThreadsPlan {
  threads: number
  /** Mounted at once. */
  warm: number
}

/** The default quota of a profile. */
const quota = { bytes: 1024 * 1024 * 1024, inodes: 100_000 }
/** Parallel callers. */
const callers = 4

/**
 * Each thread is created, mounted, gets a few files, and is evicted; then some are mounted again, as after a
 * restart of the runner. Must be called in a private mount namespace.
 * @throws Error when a thread does not contain what was written to it, or more are mounted than allowed.
 */
export async function measureManyThreads({ threads, warm }: ManyThreadsPlan): Promise<StorageFigure[]> {
  const dir = await mkdtemp(join(tmpdir(), 'glovebox-many-'))
  const settings = { home: join(dir, 'home'), mountsDir: join(dir, 'mounts'), reserveBytes: 0, lockPatienceMs: 30_000 }
  try {
    const firstUse = await useEach(settings, warm, range(threads), async (root, n) => {
      for (const file of ['notes.txt', 'src/main.py', 'src/data.json']) await writeFile(root, file, [textOf(n, file)])
    })
    const disk = await idleKib(join(settings.home, 'threads', 'bench'))
    const some = range(Math.min(threads, 400)).map((n) => (n * 7919) % threads)
    const again = await useEach(settings, warm, some, async (root, n) => {
      const { bytes } = await readFile(root, 'notes.txt')
      const pieces: Uint8Array[] = []
      for await (const piece of bytes) pieces.push(piece)
      if (!Buffer.concat(pieces).equals(textOf(n, 'notes.txt'))) throw new Error(`thread ${n} holds something else`)
    })
    const early = firstUse.slice(0, Math.ceil(threads / 10))
    const late = firstUse.slice(-Math.ceil(threads / 10))
    return [
      figure(`first use of a thread, the first tenth of ${threads}`, early),
      figure(`first use of a thread, the last tenth of ${threads}`, late),
      figure(`cold use of a thread, ${threads} there, ${warm} places`, again),
      figure('disk, idle with three small files', disk, 'KiB'),
    ]
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
}

type Settings = Parameters<typeof Filesystems.open>[0]

/** @returns the time of each use until the thread was mounted and accessed, in ms, in order. */
async function useEach(
  settings: Settings,
  warm: number,
  numbers: readonly number[],
  work: (root: number, n: number) => Promise<void>,
): Promise<number[]> {
  const kept = new MountCache(await Filesystems.open(settings), { mountedMax: warm, idleMs: 600_000 }, loudly)
  const times: number[] = []
  const rest = numbers.values()
  const caller = async () => {
    for (const n of rest) {
      const startMs = performance.now()
      const lease = await kept.acquire(idOf(n), quota)
      await work(lease.mounted.root.fd, n)
      lease.release()
      times.push(performance.now() - startMs)
      if (kept.size.mounted > warm) throw new Error(`${kept.size.mounted} are mounted`)
    }
  }
  try {
    await Promise.all(range(callers).map(caller))
    if (kept.size.mounted < Math.min(warm, numbers.length)) throw new Error(`only ${kept.size.mounted} stayed mounted`)
    return times
  } finally {
    await kept.close(0)
  }
}

async function idleKib(directory: string): Promise<number[]> {
  const files = await readdir(directory)
  return Promise.all(files.map(async (file) => ((await stat(join(directory, file))).blocks * 512) / 1024))
}

const range = (count: number): number[] => Array.from({ length: count }, (_, n) => n)
const idOf = (n: number): FilesystemId => ({ area: 'threads', org: 'bench', name: `t${n}` })
const textOf = (n: number, file: string): Buffer => Buffer.from(`${file} of thread ${n}\n`.repeat(20))

const loudly = {
  failed: (id: FilesystemId, error: unknown) => console.error(id.name, error),
  recovered: (id: FilesystemId) => console.error(id.name, 'recovered after unclean shutdown'),
}

const figure = (what: string, values: readonly number[], unit: StorageFigure['unit'] = 'ms'): StorageFigure => ({
  what,
  p50: quantile(values, 0.5),
  p95: quantile(values, 0.95),
  unit,
  count: values.length,
})

if (process.argv[1] === import.meta.filename)
  process.exitCode = await inOwnMountNamespace(import.meta.filename, process.argv.slice(2), async ([count]) => {
    process.stdout.write(storageTable(await measureManyThreads({ threads: Number(count ?? 10_000), warm: 200 })))
  })
