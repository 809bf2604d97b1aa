/**
 * Mounts a thread and writes one file over and over, in a mount namespace of its own, until it is killed.
 *   storage-dying.ts HOME MOUNTS_DIR
 * Prints a line when the first version is there; a version is one letter, repeated.
 */
import { writeFile } from '../../src/storage/files.ts'
import { Filesystems } from '../../src/storage/filesystems.ts'
import { WarmFilesystems } from '../../src/storage/warm.ts'
import { threadId } from './storage-rooms.ts'

const [, , home = '', mountsDir = ''] = process.argv
const filesystems = await Filesystems.open({ home, mountsDir, reserveBytes: 0, lockPatienceMs: 5_000 })
const nothing = { failed: () => undefined, recovered: () => process.stdout.write('recovered\n') }
const warm = new WarmFilesystems(filesystems, { mountedMax: 4, idleMs: 1_000 }, nothing)
const { mounted } = await warm.acquire(threadId('victim'), { bytes: 64 * 1024 * 1024, inodes: 100 })
for (let n = 0; ; n++) {
  await writeFile(mounted.root.fd, 'f', [
    Buffer.alloc(300_000, 'abcdefgh'[n % 8]),
    Buffer.alloc(300_000, 'abcdefgh'[n % 8]),
  ])
  if (n === 0) process.stdout.write('writing\n')
}
