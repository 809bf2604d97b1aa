import { existsSync, readdirSync, rmSync } from 'node:fs'
import { StartRefused } from '../../base/errors.ts'
import { InstanceLock } from '../../base/instance-lock.ts'
import type { Cgroups } from '../cgroups/cgroups.ts'
import { findProgram } from '../jails/programs.ts'
import { mountsBelow, unmount } from '../mounts.ts'
import { type RuntimeName, runtimeNames } from '../settings.ts'
import type { IdRanges } from './id-ranges.ts'
import { Runtime } from './runtime.ts'

/** Resources that a killed instance with the same ID left behind. */
export interface Reclaimed {
  containers: number
  cgroups: number
  /** Includes those of other instances that no longer run. */
  idRanges: number
}

/**
 * Removes the resources that a killed instance with the same ID left behind. Its home is locked, so only one runner of an
 * instance runs at a time and everything that is found is left over.
 * @throws StartRefused if a process cannot be killed.
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

/** Each instance creates its cgroup before this step, so that a waiting instance is not considered dead. */
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

/** Removes a directory of the product. Never enters a mount, which contains files of the machine. */
export async function removeTree(dir: string): Promise<void> {
  for (const point of mountsBelow(dir)) await unmount(point)
  const left = mountsBelow(dir)
  if (left.length > 0) throw new Error(`${left.join(', ')} cannot be unmounted`)
  rmSync(dir, { recursive: true, force: true })
}
