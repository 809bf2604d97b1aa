import { codeOf } from '../../kernel/kernel.ts'
import type { Log } from '../../observe/log.ts'
import { keyOf } from '../../storage/filesystem-id.ts'
import type { Mounted } from '../../storage/filesystems.ts'
import type { MountCache } from '../../storage/mount-cache.ts'

/**
 * Whether the disk has stored all that was written to a filesystem. One that lost writes is mounted and checked anew.
 * The kernel reports an error of an earlier write to the next syncfs(2): https://man7.org/linux/man-pages/man2/sync.2.html
 */
export async function keptWrites(mounted: Mounted, mounts: MountCache, log: Log): Promise<boolean> {
  try {
    await mounts.flush(mounted)
    return true
  } catch (error) {
    log.error({ err: error, code: codeOf(error), storage: keyOf(mounted.id) }, 'the disk lost what a run wrote')
    mounts.distrust(mounted)
    return false
  }
}
