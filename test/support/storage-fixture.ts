/** Storage for tests: a home, mount points, and ids; all removed at the end. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type OpenFile, readFile } from '../../src/storage/files.ts'
import type { FilesystemId } from '../../src/storage/filesystem-id.ts'
import { Filesystems, type Mounted } from '../../src/storage/filesystems.ts'

export const mib = 1024 * 1024
export const smallQuota = { bytes: 8 * mib, inodes: 200 }

export const threadId = (name: string): FilesystemId => ({ area: 'threads', org: 'org_Test', name })

export interface Room {
  dir: string
  home: string
  filesystems: Filesystems
  /** Creates it if necessary, and mounts it. */
  mounted(name: string, quota?: { bytes: number; inodes: number }): Promise<Mounted>
  imagePath(name: string): string
  remove(): Promise<void>
}

export async function openRoom(reserveBytes = 0): Promise<Room> {
  const dir = mkdtempSync(join(tmpdir(), 'glovebox-storage-'))
  const home = join(dir, 'home')
  const filesystems = await Filesystems.open({
    home,
    mountsDir: join(dir, 'mounts'),
    reserveBytes,
    lockPatienceMs: 5_000,
  })
  return {
    dir,
    home,
    filesystems,
    async mounted(name, quota = smallQuota) {
      await filesystems.create(threadId(name), quota)
      return filesystems.mount(threadId(name))
    },
    imagePath: (name) => join(home, 'threads', 'org_Test', `${name}.ext4`),
    remove: async () => {
      await filesystems.close()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

export async function contentOf(file: OpenFile): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  for await (const chunk of file.bytes) chunks.push(chunk)
  return Buffer.concat(chunks)
}

export const textAt = async (root: number, path: string): Promise<string> =>
  (await contentOf(await readFile(root, path))).toString()

/** Zero bytes in chunks, without holding them all in memory. */
export function* zeros(bytes: number, chunkBytes = 65_536): Generator<Uint8Array> {
  for (let left = bytes; left > 0; left -= chunkBytes) yield new Uint8Array(Math.min(left, chunkBytes))
}
