import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Cleanup } from '../base/cleanup.ts'
import { StartRefused } from '../base/errors.ts'
import { openCgroups } from './cgroups/cgroups.ts'
import { Processors } from './cgroups/processors.ts'
import { makeDir } from './images/generated-files.ts'
import { openImage, writeImage } from './images/image.ts'
import { SocketMemory } from './jails/socket-memory.ts'
import { makeMountsSlaves, mountEmpty, requireOwnMountNamespace, uncoverProc, unmount } from './mounts.ts'
import { probe, type RejectedRuntime } from './probe.ts'
import type { EngineSettings, RuntimeName } from './settings.ts'
import type { SlotMachine } from './slots/create-slot.ts'
import { IdRanges } from './slots/id-ranges.ts'
import { MountTurns } from './slots/mount-turns.ts'
import { type Reclaimed, reclaim, removeTree } from './slots/reclaim.ts'
import type { OpenDock } from './slots/slot-parts.ts'

export type { EngineSettings } from './settings.ts'

/** What the kernel allows at most by default (fs.nr_open). */
const openFilesCeiling = 1_048_576

/** This machine as a place for slots: everything of it that was made once, at start. */
export interface Machine extends SlotMachine {
  runtimeVersion: string
  /** Runtimes that come before the one in use, and why they are not it. */
  rejected: readonly RejectedRuntime[]
  reclaimed: Reclaimed
  /** Root directory of builders. */
  builderRoot: string
  /** Where the roots of slots of stored images are generated. */
  rootsDir: string
  /** Undoes what `openMachine` did; every slot is destroyed before. */
  close(): Promise<void>
}

/**
 * Prepares the machine for slots and shows by a real one that they hold.
 * The process must be root in a mount namespace of its own.
 * @param openDock makes the dock of each slot; absent where there is no storage.
 * @throws StartRefused, with a remedy, when any part of the isolation cannot be had.
 */
export async function openMachine(settings: EngineSettings, openDock?: OpenDock): Promise<Machine> {
  requireRoot()
  requireOwnMountNamespace()
  requireInstanceId(settings.instanceId)
  const { stateDir, instanceId } = settings
  const bundlesDir = join(stateDir, 'bundles')
  const rootsDir = join(stateDir, 'roots')
  const docksDir = join(stateDir, 'docks')
  const devicesDir = join(stateDir, 'devices')
  const runtimeRoot = (name: RuntimeName) => join(stateDir, 'runtime', name)
  const undo = new Cleanup()
  try {
    await makeMountsSlaves()
    await uncoverProc()
    makeStateDir(stateDir)
    undo.add(() => removeTree(stateDir))
    const shadow = await hideEmptyUnified(settings.cgroupRoot)
    const base = { memoryBytes: settings.baseMemoryBytes, pids: settings.basePids }
    const cgroups = openCgroups({ root: settings.cgroupRoot, instanceId, base, ...(shadow ? { shadow } : {}) })
    undo.add(() => cgroups.close())
    const ids = new IdRanges(settings.idLeaseDir, instanceId, settings.idBase)
    const reclaimed = await reclaim({ runtimeRoot, dirs: [bundlesDir, rootsDir, docksDir, devicesDir], cgroups, ids })
    for (const dir of [bundlesDir, join(stateDir, 'runtime')]) mkdirSync(dir, { recursive: true, mode: 0o700 })
    // The runtimes look for what is in these as the ids of slots, too.
    for (const dir of [docksDir, devicesDir]) makeStateDir(dir)
    const image = undo.owns(await openImage(rootsDir, settings))
    const builderRoot = writeBuilderRoot(rootsDir)
    const processors = cgroups.processors && new Processors(cgroups.processors)
    const dirs = { bundlesDir, docksDir, devicesDir }
    const { storageIops } = settings
    const socketMemory = undo.owns(await SocketMemory.open(cgroups.cpuFile))
    const watches = { mountTurns: new MountTurns(), socketMemory }
    const kernel = { cgroups, processors, ...watches, storageIops, openFilesMax: openFilesMax() }
    const host = { ...kernel, ids, image, ...dirs, openDock }
    const { runtime, version, rejected, languages } = await probe(settings.runtime, host, runtimeRoot)
    const found = { runtime, runtimeVersion: version, languages, rejected, reclaimed, builderRoot, rootsDir }
    return { ...host, ...found, close: closing(undo.keep()) }
  } catch (error) {
    await undo.run()
    throw error
  }
}

/** The image of the machine with mount points and the program of builders. */
function writeBuilderRoot(rootsDir: string): string {
  const root = join(rootsDir, 'builder')
  writeImage(root)
  for (const point of ['dock', 'debs', 'builder']) makeDir(join(root, point))
  for (const name of ['builder.py', 'layer.py', 'install-packages.sh'])
    copyFileSync(new URL(`../../guest/images/${name}`, import.meta.url), join(root, 'builder', name))
  return root
}

const closing = (undo: Cleanup) => () => undo.run()

function requireRoot(): void {
  if (process.getuid?.() === 0) return
  throw new StartRefused(
    'Creating slots requires root.',
    'Start as root. The process that serves HTTP drops its privileges.',
  )
}

/** Our own hard limit: raising it takes a capability that the root of a container often lacks. */
function openFilesMax(): number {
  const hard = /^Max open files\s+\S+\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1]
  return hard === undefined || hard === 'unlimited' ? openFilesCeiling : Math.min(Number(hard), openFilesCeiling)
}

/** It becomes part of paths and names. */
function requireInstanceId(id: string): void {
  if (/^[a-z0-9][a-z0-9-]{0,31}$/.test(id)) return
  throw new StartRefused(
    `The instance id ${JSON.stringify(id)} cannot be used.`,
    'Use 1 to 32 lower case letters, digits and hyphens.',
  )
}

/** The runtimes look for the roots of slots as the ids of slots, so each directory on the way must let them pass. */
function makeStateDir(dir: string): void {
  if (dir !== dirname(dir)) makeStateDir(dirname(dir))
  if (!existsSync(dir)) {
    mkdirSync(dir)
    chmodSync(dir, 0o711) // Whatever the umask.
  }
  if ((statSync(dir).mode & 0o001) === 0)
    throw new StartRefused(`Slots cannot pass through ${dir}, on the way to their roots.`, `chmod o+x ${dir}`)
}

/**
 * crun before 1.9 refuses to work where cgroup v1 and v2 are both mounted. In this private mount namespace an empty
 * directory takes the place of the v2 tree, provided that none of the controllers we use lives there.
 * @returns that directory, where crun writes as if it were a cgroup; undefined when nothing had to be hidden.
 */
async function hideEmptyUnified(cgroupRoot: string): Promise<string | undefined> {
  const unified = join(cgroupRoot, 'unified')
  if (!existsSync(unified)) return undefined
  const controllers = join(unified, 'cgroup.controllers')
  if (!existsSync(controllers)) return unified
  const here = readFileSync(controllers, 'utf8').trim().split(' ')
  if (here.some((name) => ['memory', 'pids', 'cpu'].includes(name))) return undefined
  await unmount(unified)
  await mountEmpty(unified)
  return unified
}
