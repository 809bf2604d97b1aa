/**
 * Only the file operations of the runner: storage and the run protocol, without slots. Serves until its input ends.
 *   node bench/thread-files-server.ts DIRECTORY BYTES
 */

import { once } from 'node:events'
import { join } from 'node:path'
import { pino } from 'pino'
import { SlotPool } from '../src/engine/slots/pool.ts'
import { FairQueue } from '../src/engine/slots/queue.ts'
import { Runs } from '../src/runner/runs/runs.ts'
import { Sandboxes } from '../src/runner/sandboxes/sandboxes.ts'
import { RunnerServer } from '../src/runner/server.ts'
import { ChangedThreads } from '../src/runner/storage/changed-threads.ts'
import { DiskWatch } from '../src/runner/storage/disk-watch.ts'
import { ThreadClaims } from '../src/runner/storage/thread-claims.ts'
import { VolumeClaims } from '../src/runner/storage/volume-claims.ts'
import { Filesystems } from '../src/storage/filesystems.ts'
import { MountCache } from '../src/storage/mount-cache.ts'

const [directory = '', bytes = '0'] = process.argv.slice(2)
const settings = { home: join(directory, 'home'), mountsDir: join(directory, 'mounts') }
const filesystems = await Filesystems.open({ ...settings, reserveBytes: 0, lockPatienceMs: 5_000 })
const warm = new MountCache(
  filesystems,
  { mountedMax: 2, idleMs: 600_000 },
  { failed: (_, error) => console.error(error), recovered: () => undefined },
)
const noSlots = () => Promise.reject(new Error('there are no slots here'))
const pool = new SlotPool(
  noSlots,
  { slotsMax: 1, slotsReady: 0, idleMs: 1, runsPerSlot: 1, zygoteMaxAgeMs: 900_000, prewarmJails: false },
  { failed: () => undefined, changed: () => undefined },
)
const queue = new FairQueue({ places: 1, placesPerOrg: 1, waitingPerOrg: 1, waitMs: 1 })
const log = pino({ level: 'silent' })
const watch = new DiskWatch(filesystems.room, warm, settings.mountsDir, log)
const storage = {
  threads: new ThreadClaims(warm, watch),
  volumes: new VolumeClaims(warm, watch),
  mounts: warm,
  watch,
  changed: new ChangedThreads('seconds', async () => true, log),
  kept: async () => true,
  close: () => warm.close(0),
}
const runs = new Runs(
  queue,
  pool,
  storage,
  () => [],
  () => undefined,
)
const socketPath = join(directory, 'link', 'runner.sock')
const server = new RunnerServer(
  { socketPath, frontUid: 0, frontGid: 0, graceMs: 0, runnerId: 'bench', epoch: 1 },
  { runs, storage, sandboxes: new Sandboxes({ max: 0 }, undefined, log) },
  log,
)
await server.listen()
const lease = await warm.acquire(
  { area: 'threads', org: 'bench', name: 'large' },
  { bytes: Number(bytes), inodes: 1_000 },
)
console.log(lease.mounted.path)
process.stdin.resume()
await once(process.stdin, 'end')
console.log(process.resourceUsage().maxRSS)
lease.release()
await server.close()
await warm.close(5_000)
