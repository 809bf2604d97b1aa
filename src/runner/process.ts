import { join } from 'node:path'
import { Cleanup } from '../base/cleanup.ts'
import { monotonicMs } from '../base/clock.ts'
import { StartRefused } from '../base/errors.ts'
import type { HostWorkspace } from '../base/host-workspace.ts'
import type { Instance } from '../base/instance.ts'
import type { PackageCacheSettings } from '../base/package-cache.ts'
import type { Language } from '../base/run.ts'
import { Egress } from '../egress/client.ts'
import { imagePartsOf } from '../engine/images/image.ts'
import { findPreloadProblem } from '../engine/jails/preload.ts'
import { type EngineSettings, type Machine, openMachine } from '../engine/machine.ts'
import { createSlot } from '../engine/slots/create-slot.ts'
import { memoryIsShort } from '../engine/slots/memory-pressure.ts'
import { SlotPool } from '../engine/slots/pool.ts'
import type { MakeSlot, PoolEvents, PoolSettings } from '../engine/slots/pool-settings.ts'
import { FairQueue, type QueueSettings } from '../engine/slots/queue.ts'
import type { Slot } from '../engine/slots/slot.ts'
import type { Log } from '../observe/log.ts'
import { observeProcess } from '../observe/process-vitals.ts'
import { Dock } from '../storage/dock.ts'
import { Images, type ImagesSettings } from './images/images.ts'
import { inspectionOf, type SlotCounts } from './inspection.ts'
import { Runs } from './runs/runs.ts'
import { HostWorkspaces } from './sandboxes/host-workspaces.ts'
import type { SandboxImage } from './sandboxes/sandbox-host.ts'
import { Sandboxes } from './sandboxes/sandboxes.ts'
import { RunnerServer } from './server.ts'
import { type OpenStorage, openStorage, type StorageSettings } from './storage/storage.ts'

/** Long enough that a sandbox between two calls of an agent keeps what it has read. */
const idleMemoryMs = 60_000

export interface RunnerSettings {
  instance: Instance
  engine: EngineSettings
  pool: PoolSettings
  queue: QueueSettings
  /** Sandboxes at once. */
  sandboxesMax: number
  /** Idle time after which a sandbox gives back memory, in milliseconds. */
  idleMemoryMs?: number
  /** `none`: no profile has storage, and the machine need not support it. */
  storage: StorageSettings | 'none'
  /** Directories of the host that sandboxes can have; absent: none. */
  workspaces?: readonly HostWorkspace[]
  /** Starts the broker of the network; absent: no run has one. */
  brokerCommand?: readonly string[]
  /** Absent: there is no package cache. */
  packageCache?: PackageCacheSettings | undefined
  images: Omit<ImagesSettings, 'engine'>
  /** Distinct lists of modules that profiles preload. */
  preloads: readonly (readonly string[])[]
  frontUid: number
  frontGid: number
  graceMs: number
}

/** A runner that accepts connections. */
export interface RunningRunner {
  /** Languages of the image of the machine. */
  readonly languages: readonly Language[]
  /** Ends every run as `shutdown`, destroys every slot, and removes what the runner created on the machine. */
  close(): Promise<void>
}

/**
 * Builds the modules of the runner in order: machine, storage, pool, queue, runs, server.
 * @throws StartRefused when the machine cannot provide the required isolation.
 */
export async function openRunner(settings: RunnerSettings, log: Log): Promise<RunningRunner> {
  const startedMs = monotonicMs()
  const hasStorage = settings.storage !== 'none'
  const undo = new Cleanup()
  try {
    const machine = await openMachine(settings.engine, hasStorage ? Dock.open : undefined)
    undo.add(() => machine.close())
    for (const modules of settings.preloads) await requirePreload(machine, modules)
    const storage = await openIfWanted(settings.storage, undo, log)
    const events: PoolEvents = {
      failed: (error) => log.error({ err: error }, 'slot could not be created or destroyed'),
      changed: () => server.announce(pool.trouble),
    }
    const images = await Images.open({ ...settings.images, engine: settings.engine }, machine, log)
    undo.add(() => images.close())
    const counts: SlotCounts = { made: 0, failed: 0 }
    const makeSlot = countedIn(counts, (image) => slotOf(machine, images, image))
    const pool = new SlotPool(makeSlot, settings.pool, events, memoryIsShort, (name) => images.find(name)?.id ?? '')
    undo.add(() => pool.close())
    const queue = new FairQueue(settings.queue)
    const languagesOf = (image?: string) => images.languagesOf(image).map(({ language }) => language)
    const egress = settings.brokerCommand && new Egress(settings.brokerCommand, log, settings.packageCache)
    undo.add(async () => egress?.close())
    const failed = (error: unknown, runId: string) => log.error({ err: error, trace_id: runId }, 'run failed')
    const runs = new Runs(queue, pool, storage, languagesOf, failed, egress)
    const workspaces = new HostWorkspaces(settings.workspaces ?? [], join(settings.engine.stateDir, 'reviews'))
    const host = storage && {
      ...{ pool, storage, egress, workspaces, idleMemoryMs: settings.idleMemoryMs ?? idleMemoryMs },
      imageOf: (name?: string) => imageOf(machine, images, name),
      failed: (error: unknown) => log.error({ err: error }, 'memory of a sandbox could not be given back'),
    }
    const sandboxes = new Sandboxes({ max: settings.sandboxesMax }, host, log)
    const { socketPath, id } = settings.instance
    const { frontUid, frontGid, graceMs } = settings
    // A later process of the same runner has a higher epoch: no two start within a millisecond.
    const identity = { runnerId: id, epoch: Date.now() }
    observeProcess()
    const mountedMax = settings.storage === 'none' ? 0 : settings.storage.mountedMax
    const watched = { machine, pool, poolSettings: settings.pool, counts, queue, runs, storage, mountedMax, log }
    const server = new RunnerServer(
      { socketPath, frontUid, frontGid, graceMs, ...identity },
      { runs, storage, sandboxes, images, inspect: inspectionOf(watched) },
      log,
    )
    if (storage) storage.watch.onChange = () => server.announceStorage()
    images.onChange(() => {
      pool.renewReady()
      server.announceSoftware()
    })
    await pool.open()
    await server.listen()
    undo.add(() => server.close())
    undo.add(() => runs.shutDown())
    undo.add(() => sandboxes.shutDown())
    const start_ms = Math.round(monotonicMs() - startedMs)
    log.info({ runtime: machine.runtimeVersion, languages: machine.languages, start_ms }, 'runner ready')
    return { languages: machine.languages.map(({ language }) => language), close: () => undo.run() }
  } catch (error) {
    await undo.run()
    throw error
  }
}

/** An image for a sandbox, which stays mounted until it has ended. @throws Refusal image_unknown. */
async function imageOf(machine: Machine, images: Images, name: string | undefined): Promise<SandboxImage> {
  const record = images.find(name)
  const used = record && (await images.use(record))
  const { slotRoot, env: all } = used?.image ?? machine.image
  // The user of a sandbox is its own.
  const { HOME: _, USER: __, LOGNAME: ___, ...env } = all
  return { parts: imagePartsOf(slotRoot), env, release: () => used?.release() }
}

/** Makes a slot of an image, which stays mounted until the slot has ended. @param image its ID; empty: the machine. */
async function slotOf(machine: Machine, images: Images, image: string): Promise<Slot> {
  const record = image === '' ? undefined : images.find(image)
  if (record === undefined) return createSlot(machine)
  const used = await images.use(record)
  try {
    const slot = await createSlot({ ...machine, image: used.image, languages: used.languages })
    void slot.lost.then(() => used.release())
    return slot
  } catch (error) {
    used.release()
    throw error
  }
}

/** Counts the slots that are made and those that could not be made. */
const countedIn =
  (counts: SlotCounts, make: MakeSlot): MakeSlot =>
  async (image) => {
    try {
      const slot = await make(image)
      counts.made += 1
      return slot
    } catch (error) {
      counts.failed += 1
      throw error
    }
  }

/** @throws StartRefused with the message of the interpreter, so that a missing module stops the start and not a run. */
async function requirePreload(machine: Machine, modules: readonly string[]): Promise<void> {
  const problem = await findPreloadProblem(machine, modules)
  if (problem === undefined) return
  throw new StartRefused(
    `The modules ${modules.join(', ')} cannot be preloaded: ${problem}.`,
    'Install the missing modules below /usr, or remove them from the preload setting of the profile.',
  )
}

async function openIfWanted(
  settings: StorageSettings | 'none',
  undo: Cleanup,
  log: Log,
): Promise<OpenStorage | undefined> {
  if (settings === 'none') return undefined
  const storage = await openStorage(settings, log)
  undo.add(() => storage.close())
  return storage
}
