import { existsSync, readdirSync, rmSync } from 'node:fs'
import { StartRefused } from '../../base/errors.ts'
import { InstanceLock } from '../../base/instance-lock.ts'
import type { Cgroups } from '../cgroups/cgroups.ts'
import { findProgram } from '../jails/programs.ts'
import { mountsBelow, unmount } from '../mounts.ts'
import { type RuntimeName, runtimeNames } from '../settings.ts'
import type { IdRanges } from './id-ranges.ts'
import { Runtime } from './runtime.ts'

/** What a killed instance of the same id had left. */
export interface Reclaimed {
  containers: number
  cgroups: number
  /** Also those of other instances that are gone for good. */
  idRanges: number
}

/**
 * Removes everything that an instance of the same id left when it was killed. Only one runner of an instance lives at a
 * time (its home is locked), so whatever is found is nobody's.
 * @throws StartRefused when something cannot be ended.
 */
export async function reclaim(options: {
  runtimeRoot(name: RuntimeName): string
  dirs: readonly string[]
  cgroups: Cgroups
  ids: IdRanges
}): Promise<Reclaimed> {
  try {
    let containers = 0
    for (const name of runtimeNames) containers += await deleteContainers(name, options.runtimeRoot(name))
    const cgroups = await options.cgroups.reclaim()
    for (const dir of options.dirs) await removeTree(dir)
    return { containers, cgroups, idRanges: await reclaimIdRanges(options.ids, options.cgroups) }
  } catch (error) {
    throw new StartRefused(
      `What an earlier run of this instance left cannot be removed: ${(error as Error).message}`,
      'End the processes named, or start with another state directory.',
    )
  }
}

/** Each instance has its cgroup before it comes here, so one that waits for its turn is not taken for gone. */
async function reclaimIdRanges(ids: IdRanges, cgroups: Cgroups): Promise<number> {
  const turn = await InstanceLock.acquire(ids.dir, 'ids', true)
  try {
    return ids.reclaim((instanceId) => !cgroups.hasInstance(instanceId))
  } finally {
    turn.release()
  }
}

async function deleteContainers(name: RuntimeName, root: string): Promise<number> {
  if (!existsSync(root) || readdirSync(root).length === 0) return 0
  const path = await findProgram(name)
  if (path === undefined) throw new Error(`${root} holds containers of ${name}, which is not installed any more`)
  const runtime = new Runtime(name, path, root)
  const ids = await runtime.list()
  for (const id of ids) await runtime.delete(id)
  return ids.length
}

/** Removes a directory of ours. Never walks into a mount: what is mounted below belongs to the machine. */
export async function removeTree(dir: string): Promise<void> {
  for (const point of mountsBelow(dir)) await unmount(point)
  const left = mountsBelow(dir)
  if (left.length > 0) throw new Error(`${left.join(', ')} cannot be unmounted`)
  rmSync(dir, { recursive: true, force: true })
}
