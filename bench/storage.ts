/**
 * The cost of threads: time of each step, disk space, throughput compared with standard tools.
 *   node bench/storage.ts
 */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Dock } from '../src/storage/dock.ts'
import { readFile, writeFile } from '../src/storage/files.ts'
import type { FilesystemId } from '../src/storage/filesystem-id.ts'
import { Filesystems, type Mounted } from '../src/storage/filesystems.ts'
import { MountCache } from '../src/storage/mount-cache.ts'
import { quantile, shown } from './figures.ts'
import { inOwnMountNamespace } from './mount-namespace.ts'
import { handoverTable, measureHandover } from './storage-handover.ts'

export interface StorageFigure {
  what: string
  p50: number
  p95: number
  unit: 'ms' | 'KiB' | 'MB/s' | 'ratio'
  /** Number of measurements. */
  count: number
}

export interface StoragePlan {
  rounds: number
  transferBytes: number
}

const mib = 1024 * 1024
const quota = { bytes: 1024 * mib, inodes: 65_536 }
const chunkBytes = 256 * 1024

/** Must be called in a private mount namespace. */
export async function measureStorage({ rounds, transferBytes }: StoragePlan): Promise<StorageFigure[]> {
  const dir = await mkdtemp(join(tmpdir(), 'glovebox-storage-'))
  try {
    const settings = { home: join(dir, 'home'), mountsDir: join(dir, 'mounts'), reserveBytes: 0, lockPatienceMs: 5_000 }
    const filesystems = await Filesystems.open(settings)
    const steps = await measureSteps(filesystems, rounds)
    const handed = await measureAttach(filesystems, join(dir, 'dock'), rounds)
    const moved = await measureTransfer(filesystems, transferBytes)
    return [...steps, ...handed, ...moved]
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
}

const idOf = (name: string): FilesystemId => ({ area: 'threads', org: 'bench', name })

async function timed<T>(times: number[], work: () => Promise<T>): Promise<T> {
  const startMs = performance.now()
  const value = await work()
  times.push(performance.now() - startMs)
  return value
}

const figure = (what: string, values: readonly number[], unit: StorageFigure['unit'] = 'ms'): StorageFigure => ({
  what,
  p50: quantile(values, 0.5),
  p95: quantile(values, 0.95),
  unit,
  count: values.length,
})

async function measureSteps(filesystems: Filesystems, rounds: number): Promise<StorageFigure[]> {
  const [create, mount, unmount, warmUse]: [number[], number[], number[], number[]] = [[], [], [], []]
  const [fresh, used]: [number[], number[]] = [[], []]
  const format: number[] = []
  await timed(format, () => filesystems.create(idOf('first'), quota))
  for (let round = 0; round < rounds; round++) {
    const id = idOf(`t${round}`)
    await timed(create, () => filesystems.create(id, quota))
    const mounted = await timed(mount, () => filesystems.mount(id))
    for (let n = 0; n < 20; n++) await writeFile(mounted.root.fd, `d${n}/f`, [Buffer.alloc(100, n)])
    await timed(unmount, () => filesystems.unmount(mounted))
    used.push(((await filesystems.allocatedBytes(id)) ?? 0) / 1024)
    await filesystems.create(idOf(`u${round}`), quota)
    fresh.push(((await filesystems.allocatedBytes(idOf(`u${round}`))) ?? 0) / 1024)
  }
  const warm = new MountCache(filesystems, { mountedMax: 4, idleMs: 60_000 }, quiet)
  ;(await warm.acquire(idOf('first'), quota)).release()
  for (let round = 0; round < rounds * 10; round++)
    (await timed(warmUse, () => warm.acquire(idOf('first'), quota))).release()
  await warm.close(1_000)
  return [
    figure('format the template of a quota, and create', format),
    figure('create a thread of 1 GiB, durable', create),
    figure('mount, cold', mount),
    figure('acquire, warm', warmUse),
    figure('trim and unmount', unmount),
    figure('disk, never used', fresh, 'KiB'),
    figure('disk, idle with 20 small files', used, 'KiB'),
  ]
}

const quiet = { failed: (_: FilesystemId, error: unknown) => console.error(error), recovered: () => undefined }

async function measureAttach(filesystems: Filesystems, dockDir: string, rounds: number): Promise<StorageFigure[]> {
  const mounted = await filesystems.mount(idOf('first'))
  const dock = await Dock.open(dockDir)
  const slot = spawn('unshare', ['--user', '--mount', '--propagation', 'slave', '--', 'cat'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  try {
    slot.stdin.write('.')
    await once(slot.stdout, 'data')
    for (const map of ['uid_map', 'gid_map']) writeFileSync(`/proc/${slot.pid}/${map}`, '0 1000000 65536\n')
    const [attach, detach]: [number[], number[]] = [[], []]
    for (let round = 0; round < rounds * 10; round++) {
      const options = { initPid: slot.pid ?? 0, name: 'home', readOnly: false }
      const attachment = await timed(attach, () => dock.attach(mounted, options))
      await timed(detach, () => attachment.detach())
    }
    return [figure('attach to a slot', attach), figure('detach from it', detach)]
  } finally {
    slot.kill('SIGKILL')
    await once(slot, 'exit')
    await dock.release()
    await filesystems.unmount(mounted)
  }
}

/** Through the operations of `files.ts`, compared with dd into and out of the same filesystem; both end with fsync. */
async function measureTransfer(filesystems: Filesystems, bytes: number): Promise<StorageFigure[]> {
  const id = idOf('large')
  await filesystems.create(id, { bytes: bytes * 2 + 256 * mib, inodes: 1_000 })
  const mounted = await filesystems.mount(id)
  try {
    const pairs = [
      await oneTransfer(mounted, bytes),
      await oneTransfer(mounted, bytes),
      await oneTransfer(mounted, bytes),
    ]
    const rate = (key: keyof Transfer) => pairs.map((pair) => bytes / 1e3 / pair[key])
    return [
      figure('write a large file', rate('writeMs'), 'MB/s'),
      figure('read it', rate('readMs'), 'MB/s'),
      figure(
        'write, rate against dd',
        pairs.map((pair) => pair.ddWriteMs / pair.writeMs),
        'ratio',
      ),
      figure(
        'read, rate against dd',
        pairs.map((pair) => pair.ddReadMs / pair.readMs),
        'ratio',
      ),
    ]
  } finally {
    await filesystems.unmount(mounted)
  }
}

interface Transfer {
  writeMs: number
  readMs: number
  ddWriteMs: number
  ddReadMs: number
}

async function oneTransfer(mounted: Mounted, bytes: number): Promise<Transfer> {
  const [write, read, ddWrite, ddRead]: [number[], number[], number[], number[]] = [[], [], [], []]
  await timed(write, () => writeFile(mounted.root.fd, 'ours', zeros(bytes)))
  await timed(read, async () => {
    const file = await readFile(mounted.root.fd, 'ours')
    for await (const _ of file.bytes);
  })
  const theirs = join(mounted.path, 'theirs')
  await timed(ddWrite, () => dd('if=/dev/zero', `of=${theirs}`, `count=${bytes / chunkBytes}`, 'conv=fsync'))
  await timed(ddRead, () => dd(`if=${theirs}`, 'of=/dev/null'))
  await rm(theirs)
  return { writeMs: write[0]!, readMs: read[0]!, ddWriteMs: ddWrite[0]!, ddReadMs: ddRead[0]! }
}

const dd = (...words: string[]) => promisify(execFile)('dd', ['bs=256k', 'status=none', ...words])

function* zeros(bytes: number): Generator<Uint8Array> {
  const chunk = new Uint8Array(chunkBytes)
  for (let at = 0; at < bytes; at += chunkBytes) yield chunk
}

export function storageTable(figures: readonly StorageFigure[]): string {
  const lines = figures.map(
    ({ what, p50, p95, unit, count }) => `| ${what} | ${shown(p50)} | ${shown(p95)} | ${unit} | ${count} |`,
  )
  return ['| storage | p50 | p95 | unit | n |', '|---|---|---|---|---|', ...lines, ''].join('\n')
}

if (process.argv[1] === import.meta.filename)
  process.exitCode = await inOwnMountNamespace(import.meta.filename, process.argv.slice(2), async () => {
    process.stdout.write(storageTable(await measureStorage({ rounds: 30, transferBytes: 1024 * mib })))
    process.stdout.write(`\n${handoverTable(await measureHandover(500))}`)
  })
