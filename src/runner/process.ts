import { Cleanup } from '../base/cleanup.ts'
import { monotonicMs } from '../base/clock.ts'
import { StartRefused } from '../base/errors.ts'
import type { Instance } from '../base/instance.ts'
import { readPackages } from '../engine/images/packages.ts'
import { findPreloadProblem } from '../engine/jails/preload.ts'
import { type EngineSettings, type Machine, openMachine } from '../engine/machine.ts'
import { createSlot } from '../engine/slots/create-slot.ts'
import { type PoolEvents, type PoolSettings, SlotPool } from '../engine/slots/pool.ts'
import { FairQueue, type QueueSettings } from '../engine/slots/queue.ts'
import type { Log } from '../observe/log.ts'
import { Dock } from '../storage/dock.ts'
import { Runs } from './runs/runs.ts'
import { RunnerServer } from './server.ts'
import { type OpenStorage, openStorage, type StorageSettings } from './storage/storage.ts'

export interface RunnerSettings {
  instance: Instance
  engine: EngineSettings
  pool: PoolSettings
  queue: QueueSettings
  /** `none`: no profile has storage, and the machine need not support it. */
  storage: StorageSettings | 'none'
  /** Distinct lists of modules that profiles preload. */
  preloads: readonly (readonly string[])[]
  frontUid: number
  frontGid: number
  graceMs: number
}

/** A runner that accepts connections. */
export interface RunningRunner {
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
    const pool = new SlotPool(() => createSlot(machine), settings.pool, events)
    undo.add(() => pool.close())
    const queue = new FairQueue(settings.queue)
    const languages = machine.languages.map(({ language }) => language)
    const runs = new Runs(queue, pool, storage, languages, (error, runId) => {
      log.error({ err: error, trace_id: runId }, 'run failed')
    })
    const { socketPath, id } = settings.instance
    const { frontUid, frontGid, graceMs } = settings
    // A later process of the same runner has a higher epoch: no two start within a millisecond.
    const identity = { runnerId: id, epoch: Date.now() }
    const software = {
      interpreters: machine.languages.map(({ language, version }) => ({ language, version })),
      ...readPackages(),
    }
    const server = new RunnerServer(
      { socketPath, frontUid, frontGid, graceMs, ...identity, software },
      runs,
      storage,
      log,
    )
    await pool.open()
    await server.listen()
    undo.add(() => server.close())
    undo.add(() => runs.shutDown())
    const start_ms = Math.round(monotonicMs() - startedMs)
    log.info({ runtime: machine.runtimeVersion, languages: machine.languages, start_ms }, 'runner ready')
    return { close: () => undo.run() }
  } catch (error) {
    await undo.run()
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
