/**
 * Mounts a thread and writes, in a private mount namespace, until it is killed.
 *   storage-dying.ts HOME MOUNTS_DIR one|many
 * `one`: one file repeatedly; a version is one letter, repeated. `many`: directories with small files repeatedly,
 * many in parallel, so that a kill is likely to interrupt some of them. Prints a line when the first version is
 * complete.
 */
import { deletePath } from '../../src/storage/deletion.ts'
import { makeDirectory, writeFile } from '../../src/storage/files.ts'
import { Filesystems } from '../../src/storage/filesystems.ts'
import { MountCache } from '../../src/storage/mount-cache.ts'
import { threadId } from './storage-fixture.ts'

const [, , home = '', mountsDir = '', how] = process.argv
const filesystems = await Filesystems.open({ home, mountsDir, reserveBytes: 0, lockPatienceMs: 5_000 })
const nothing = { failed: () => undefined, recovered: () => process.stdout.write('recovered\n') }
const warm = new MountCache(filesystems, { mountedMax: 4, idleMs: 1_000 }, nothing)
const { mounted } = await warm.acquire(threadId('victim'), { bytes: 64 * 1024 * 1024, inodes: 1_000 })
const root = mounted.root.fd

async function writeOne(): Promise<never> {
  for (let n = 0; ; n++) {
    await writeFile(root, 'f', [Buffer.alloc(300_000, 'abcdefgh'[n % 8]), Buffer.alloc(300_000, 'abcdefgh'[n % 8])])
    if (n === 0) process.stdout.write('writing\n')
  }
}

async function writeMany(place: string): Promise<never> {
  for (let n = 0; ; n++) {
    for (let d = 0; d < 8; d++) await makeDirectory(root, `${place}/${d}`)
    await writeFile(root, `${place}/f`, [Buffer.from(place)])
    for (let d = 0; d < 8; d++) await deletePath(root, `${place}/${d}`, false)
    if (n === 1) process.stdout.write('writing\n')
  }
}

if (how === 'one') await writeOne()
else await Promise.all(Array.from({ length: 12 }, (_, n) => writeMany(`place${n}`)))
