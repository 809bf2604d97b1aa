import { Cleanup } from '../base/cleanup.ts'
import { monotonicMs } from '../base/clock.ts'
import { StartRefused } from '../base/errors.ts'
import type { Instance } from '../base/instance.ts'
import { findPreloadProblem } from '../engine/jails/preload.ts'
import { type EngineSettings, type Machine, openMachine } from '../engine/machine.ts'
import { type PoolEvents, type PoolSettings, SlotPool } from '../engine/slots/pool.ts'
import { FairQueue, type QueueSettings } from '../engine/slots/queue.ts'
import { createSlot } from '../engine/slots/slot.ts'
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
  /** `none`: no profile has storage, and nothing of it is needed of this machine. */
  storage: StorageSettings | 'none'
  /** Lists of modules that profiles want imported ahead, each once. */
  preloads: readonly (readonly string[])[]
  frontUid: number
  frontGid: number
  graceMs: number
}

/** The runner, built and serving. */
export interface RunningRunner {
  /** Ends every run as `shutdown`, every slot, and what the runner made on the machine. */
  close(): Promise<void>
}

/**
 * Builds the runner's rooms in order: the machine's side, storage, the pool, the queue, the runs, the door.
 * @throws StartRefused when the machine cannot give the isolation that is asked for.
 */
export async function openRunner(settings: RunnerSettings, log: Log): Promise<RunningRunner> {
  const startedMs = monotonicMs()
  const hasStorage = settings.storage !== 'none'
  const undo = new Cleanup()
  try {
    const host = await openMachine(settings.engine, hasStorage ? Dock.open : undefined)
    undo.add(() => host.close())
    for (const modules of settings.preloads) await requirePreload(host, modules)
    const storage = await openAsked(settings.storage, undo, log)
    const events: PoolEvents = {
      failed: (error) => log.error({ err: error }, 'a slot could not be made or ended'),
      changed: () => server.announce(pool.trouble),
    }
    const pool = new SlotPool(() => createSlot(host), settings.pool, events)
    undo.add(() => pool.close())
    const queue = new FairQueue(settings.queue)
    const languages = host.languages.map(({ language }) => language)
    const runs = new Runs(queue, pool, storage, languages, (error, runId) => {
      log.error({ err: error, trace_id: runId }, 'a run failed')
    })
    const { socketPath, id } = settings.instance
    const { frontUid, frontGid, graceMs } = settings
    // A later life of the same runner always has a higher epoch: no two begin within a millisecond.
    const identity = { runnerId: id, epoch: Date.now() }
    const server = new RunnerServer({ socketPath, frontUid, frontGid, graceMs, ...identity }, runs, storage, log)
    await pool.open()
    await server.listen()
    undo.add(() => server.close())
    undo.add(() => runs.shutDown())
    const start_ms = Math.round(monotonicMs() - startedMs)
    log.info({ runtime: host.runtimeVersion, languages: host.languages, start_ms }, 'the runner takes runs')
    return { close: () => undo.run() }
  } catch (error) {
    await undo.run()
    throw error
  }
}

/** @throws StartRefused in the words of the interpreter: no run is to find out. */
async function requirePreload(host: Machine, modules: readonly string[]): Promise<void> {
  const problem = await findPreloadProblem(host, modules)
  if (problem === undefined) return
  throw new StartRefused(
    `The modules ${modules.join(', ')} cannot be imported ahead of runs: ${problem}.`,
    'Install what is missing below /usr, or take the module out of preload of its profile.',
  )
}

async function openAsked(
  settings: StorageSettings | 'none',
  undo: Cleanup,
  log: Log,
): Promise<OpenStorage | undefined> {
  if (settings === 'none') return undefined
  const storage = await openStorage(settings, log)
  undo.add(() => storage.close())
  return storage
}
