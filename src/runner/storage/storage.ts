import { join } from 'node:path'
import { makeDirectoryDurably } from '../../base/durable-directory.ts'
import { StartRefused } from '../../base/errors.ts'
import type { Log } from '../../observe/log.ts'
import { keyOf } from '../../storage/filesystem-id.ts'
import { Filesystems, type Mounted } from '../../storage/filesystems.ts'
import { MountCache, type MountCacheSettings } from '../../storage/mount-cache.ts'
import { probeStorage } from '../../storage/probe.ts'
import { ChangedThreads, type ThreadDurability } from './changed-threads.ts'
import { DiskWatch } from './disk-watch.ts'
import { keptWrites } from './kept-writes.ts'
import { ThreadClaims } from './thread-claims.ts'
import { VolumeClaims } from './volume-claims.ts'

export interface StorageSettings extends MountCacheSettings {
  /** Directory of the disks; accessible to root only. */
  home: string
  /** Where they are mounted; removed with the runner. */
  mountsDir: string
  /** Room on the disk of `home` that is kept for the database and for other organizations; see `DiskRoom`. */
  reserveBytes: number
  /** The setting `thread_durability`. */
  durability: ThreadDurability
}

/** How long `close` waits for filesystems in use, after every run has ended. */
const closePatienceMs = 5_000
/** How long a mount waits until the kernel has released an earlier mount of the same disk. */
const lockPatienceMs = 5_000

/** Storage that has passed the probe. */
export interface OpenStorage {
  threads: ThreadClaims
  volumes: VolumeClaims
  mounts: MountCache
  watch: DiskWatch
  changed: ChangedThreads
  /** Whether the disk has stored what was written to a filesystem; see `keptWrites`. */
  kept(mounted: Mounted): Promise<boolean>
  /** Unmounts everything. */
  close(): Promise<void>
}

/** Adds how to serve without threads, which are never disabled silently. */
function withRemedy(error: unknown): never {
  if (!(error instanceof StartRefused)) throw error
  throw new StartRefused(error.message, `${error.remedy} Or serve without threads: --storage none.`)
}

/** @throws StartRefused when this machine does not support storage. */
export async function openStorage(settings: StorageSettings, log: Log): Promise<OpenStorage> {
  const { home, mountsDir, reserveBytes, mountedMax, idleMs, durability } = settings
  const scratch = join(home, 'probe')
  makeDirectoryDurably(scratch, 0o700)
  await probeStorage(scratch).catch(withRemedy)
  const filesystems = await Filesystems.open({ home, mountsDir, reserveBytes, lockPatienceMs })
  const mounts = new MountCache(
    filesystems,
    { mountedMax, idleMs },
    {
      failed: (id, error) => log.error({ err: error, storage: keyOf(id) }, 'filesystem could not be unmounted'),
      recovered: (id) => log.warn({ storage: keyOf(id) }, 'recovered filesystem after unclean shutdown'),
    },
  )
  const watch = new DiskWatch(filesystems.room, mounts, mountsDir, log)
  watch.start()
  const kept = (mounted: Mounted) => keptWrites(mounted, mounts, log)
  const changed = new ChangedThreads(durability, kept, log)
  return {
    threads: new ThreadClaims(mounts, watch),
    volumes: new VolumeClaims(mounts, watch),
    mounts,
    watch,
    changed,
    kept,
    close: async () => {
      await watch.stop()
      await changed.stop()
      await mounts.close(closePatienceMs)
      await filesystems.close()
    },
  }
}
