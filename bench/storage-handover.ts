/**
 * Compares two ways to hand a filesystem to a slot: a mount that propagates from a
 * dock, and a mount sent as a descriptor. The product uses the dock: as fast, and nothing inside can remove its flags.
 *   node bench/storage-handover.ts
 */
import { execFileSync } from 'node:child_process'
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Dock } from '../src/storage/dock.ts'
import { writeFile } from '../src/storage/files.ts'
import { Filesystems } from '../src/storage/filesystems.ts'
import { inOwnMountNamespace } from './mount-namespace.ts'

export interface Handover {
  way: 'dock' | 'descriptor'
  /** Attach, access from inside, detach. */
  p50Us: number
  p95Us: number
  /** Whether root inside could make a read-only filesystem writable. */
  regainsWrite: boolean
  /** What remains when the runner is killed. */
  afterCrash: string
}

const afterCrash: Record<Handover['way'], string> = {
  dock: 'the slot’s copy, until the slot ends with its guest; nothing on the host',
  descriptor: 'the same; and a descriptor on its way lives in the socket until that is closed',
}

/** Must be called in a private mount namespace. */
export async function measureHandover(rounds: number): Promise<Handover[]> {
  const dir = await mkdtemp(join(tmpdir(), 'glovebox-handover-'))
  await chmod(dir, 0o711) // For the slot, which opens the dock by its path here.
  const program = join(dir, 'handover')
  const source = join(import.meta.dirname, 'storage-handover.c')
  execFileSync('cc', ['-std=c11', '-O2', '-Wall', '-Wextra', '-Werror', '-o', program, source])
  const filesystems = await Filesystems.open({
    home: join(dir, 'home'),
    mountsDir: join(dir, 'mounts'),
    reserveBytes: 0,
    lockPatienceMs: 5_000,
  })
  const id = { area: 'threads', org: 'bench', name: 'handover' } as const
  await filesystems.create(id, { bytes: 16 * 1024 * 1024, inodes: 100 })
  const mounted = await filesystems.mount(id)
  const dock = await Dock.open(join(dir, 'dock'))
  try {
    await writeFile(mounted.root.fd, 'seen', [])
    await mkdir(join(dock.dir, 'home'))
    const told = execFileSync(program, [mounted.path, dock.dir, String(rounds)], { encoding: 'utf8' })
    return toRows(
      Object.fromEntries(
        told
          .trim()
          .split('\n')
          .map((line) => line.split('\t') as [string, string]),
      ),
    )
  } finally {
    await dock.release()
    await filesystems.unmount(mounted)
    await rm(dir, { recursive: true, force: true })
  }
}

const toRows = (told: Record<string, string>): Handover[] =>
  (['dock', 'descriptor'] as const).map((way) => ({
    way,
    p50Us: Number(told[`${way}_p50_us`]),
    p95Us: Number(told[`${way}_p95_us`]),
    regainsWrite: told[`${way}_regains_write`] === 'y',
    afterCrash: afterCrash[way],
  }))

export function handoverTable(rows: readonly Handover[]): string {
  const lines = rows.map(
    ({ way, p50Us, p95Us, regainsWrite, afterCrash }) =>
      `| ${way} | ${p50Us} | ${p95Us} | ${regainsWrite ? 'yes' : 'no'} | ${afterCrash} |`,
  )
  return [
    '| way | p50 µs | p95 µs | root inside can undo read-only | after a crash of the runner |',
    '|---|---|---|---|---|',
    ...lines,
    '',
  ].join('\n')
}

if (process.argv[1] === import.meta.filename)
  process.exitCode = await inOwnMountNamespace(import.meta.filename, process.argv.slice(2), async () => {
    process.stdout.write(handoverTable(await measureHandover(500)))
  })
