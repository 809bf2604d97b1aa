import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Cleanup } from '../../base/cleanup.ts'
import { monotonicMs } from '../../base/clock.ts'
import { newId } from '../../base/ids.ts'
import type { Cgroups, SlotCgroup } from '../cgroups/cgroups.ts'
import type { Processors } from '../cgroups/processors.ts'
import type { Image } from '../images/image.ts'
import type { LanguageFound } from '../jails/languages.ts'
import type { SocketMemory } from '../jails/socket-memory.ts'
import { Zygotes } from '../jails/zygotes.ts'
import { Guest } from './guest.ts'
import { hostPidOf } from './host-pid.ts'
import type { IdRanges } from './id-ranges.ts'
import type { MountTurns } from './mount-turns.ts'
import { type OciConfig, toOciConfig } from './oci-config.ts'
import type { Runtime } from './runtime.ts'
import { Slot } from './slot.ts'
import { withSlotDevices } from './slot-devices.ts'
import type { OpenDock } from './slot-parts.ts'
import { SpareInterpreter } from './spare-interpreter.ts'

/** What slots are made from on this machine. */
export interface SlotMachine {
  runtime: Runtime
  cgroups: Cgroups
  ids: IdRanges
  image: Pick<Image, 'slotRoot' | 'env'>
  bundlesDir: string
  /** Where docks are made. */
  docksDir: string
  /** Where device nodes are made. */
  devicesDir: string
  /** Absent where there is no storage: slots have no dock then. */
  openDock: OpenDock | undefined
  /** Absent where runs cannot be bound to processors. */
  processors: Processors | undefined
  mountTurns: MountTurns
  socketMemory: SocketMemory
  /** Operations per second on one filesystem of a dock. */
  storageIops: number
  /** The most open files that this machine lets a run have. */
  openFilesMax: number
  languages: readonly LanguageFound[]
}

/**
 * Moves what the processes of runs are forked from into `run`: the jailer, a language host. From then on they are born
 * under its limits. What it used before stays charged to `base`.
 * @returns a function to be called when it has ended.
 * @throws Error when it cannot be moved.
 */
async function moveToRunCgroup(slotPid: number, cgroup: SlotCgroup, residents: Set<number>): Promise<() => void> {
  const pid = hostPidOf(slotPid, 'slot', cgroup.basePids())
  await cgroup.moveToRun(pid)
  if (!cgroup.holds(pid)) throw new Error('the kernel does not show a forker where runs are limited')
  residents.add(pid)
  return () => residents.delete(pid)
}

/** A slot could not be created, and something of it could not be removed either. */
export class SlotLeft extends AggregateError {
  /** Repeats the removal. @throws AggregateError when something is still left. */
  readonly remove: () => Promise<void>

  constructor(cause: unknown, problem: unknown, remove: () => Promise<void>) {
    super([cause, problem], `${(cause as Error).message} (and something of it is left)`)
    this.name = 'SlotLeft'
    this.remove = remove
  }
}

/**
 * Prepares an unbound slot. Whatever was acquired before a failure is released, newest first.
 * @throws SlotLeft when that failed as well: its id range and its cgroups stay taken until they are removed.
 */
export function createSlot(host: SlotMachine): Promise<Slot> {
  return host.mountTurns.during(() => prepareSlot(host))
}

async function prepareSlot(host: SlotMachine): Promise<Slot> {
  const startedMs = monotonicMs()
  const id = newId('slot')
  const undo = new Cleanup()
  try {
    const ids = host.ids.lease()
    const cgroup = host.cgroups.create(id)
    undo.add(async () => {
      cgroup.kill() // Again: the removal is repeated when something in it did not end.
      await cgroup.remove()
      ids.release() // Only now: while something lives in the cgroup, its ids are in use.
    })
    const dock = host.openDock && undo.owns(await host.openDock(join(host.docksDir, id)))
    const devicesDir = join(host.devicesDir, id)
    const spec = {
      devicesDir,
      slotRoot: host.image.slotRoot,
      arch: process.arch,
      openFilesMax: host.openFilesMax,
      ...(dock && { dockDir: dock.dir }),
    }
    const bundle = writeBundle(join(host.bundlesDir, id), toOciConfig(spec, ids, cgroup))
    undo.add(() => rmSync(bundle, { recursive: true, force: true }))
    undo.add(() => host.runtime.delete(id))
    undo.add(() => cgroup.kill())
    const container = await withSlotDevices(devicesDir, () => host.runtime.run(bundle, id))
    const guest = await Guest.greet(container) // BOUNDARY: all that follows is hostile input.
    const residents = new Set<number>()
    const sockets = undo.owns(host.socketMemory.addSlot(cgroup))
    await moveToRunCgroup(guest.jailerPid, cgroup, residents)
    const { env } = host.image
    const move = (slotPid: number) => moveToRunCgroup(slotPid, cgroup, residents)
    const hosts = new Zygotes(guest, env, async (slotPid) => {
      await move(slotPid)
    })
    const { languages, processors, mountTurns, storageIops } = host
    return new Slot({
      id,
      container,
      cgroup,
      guest,
      residents,
      hosts,
      spare: new SpareInterpreter(guest, move),
      env,
      dock,
      languages,
      processors,
      mountTurns,
      sockets,
      storageIops,
      undo,
      startedMs,
    })
  } catch (error) {
    await undo.run().catch((problem: unknown) => {
      throw new SlotLeft(error, problem, () => undo.run())
    })
    throw error
  }
}

function writeBundle(dir: string, config: OciConfig): string {
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config))
  return dir
}
