import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { StartRefused } from '../../base/errors.ts'
import type { Log } from '../../observe/log.ts'
import { keyOf } from '../../storage/filesystem-id.ts'
import { Filesystems } from '../../storage/filesystems.ts'
import { MountCache, type MountCacheSettings } from '../../storage/mount-cache.ts'
import { probeStorage } from '../../storage/probe.ts'
import { ThreadClaims } from './thread-claims.ts'
import { VolumeClaims } from './volume-claims.ts'

export interface StorageSettings extends MountCacheSettings {
  /** Where images are kept; only root may enter. */
  home: string
  /** Where they are mounted; gone with the runner. */
  mountsDir: string
  /** Room on the disk of `home` that storage leaves to everything else. */
  reserveBytes: number
}

/** What waits for a used filesystem at the end; every run has ended by then. */
const closePatienceMs = 5_000
/** How long a mount waits for an earlier one of the same image to end in the kernel. */
const lockPatienceMs = 5_000

/** Storage, tried out and open. */
export interface OpenStorage {
  threads: ThreadClaims
  volumes: VolumeClaims
  warm: MountCache
  /** Unmounts everything. */
  close(): Promise<void>
}

/** Threads are never given up silently; who can do without them may say so. */
function withAWayOut(error: unknown): never {
  if (!(error instanceof StartRefused)) throw error
  throw new StartRefused(error.message, `${error.remedy} Or serve without threads: --storage none.`)
}

/** @throws StartRefused when this machine cannot keep threads apart. */
export async function openStorage(settings: StorageSettings, log: Log): Promise<OpenStorage> {
  const { home, mountsDir, reserveBytes, mountedMax, idleMs } = settings
  mkdirSync(home, { recursive: true, mode: 0o700 })
  const scratch = join(home, 'probe')
  mkdirSync(scratch, { recursive: true, mode: 0o700 })
  await probeStorage(scratch).catch(withAWayOut)
  const filesystems = await Filesystems.open({ home, mountsDir, reserveBytes, lockPatienceMs })
  const warm = new MountCache(
    filesystems,
    { mountedMax, idleMs },
    {
      failed: (id, error) => log.error({ err: error, storage: keyOf(id) }, 'a filesystem could not be unmounted'),
      recovered: (id) => log.warn({ storage: keyOf(id) }, 'a filesystem was left by a crash and is whole again'),
    },
  )
  return {
    threads: new ThreadClaims(warm),
    volumes: new VolumeClaims(warm),
    warm,
    close: () => warm.close(closePatienceMs),
  }
}
