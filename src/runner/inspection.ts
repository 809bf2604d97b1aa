import { readdirSync, readFileSync } from 'node:fs'
import type { Machine } from '../engine/machine.ts'
import { memoryIsShort } from '../engine/slots/memory-pressure.ts'
import type { SlotPool } from '../engine/slots/pool.ts'
import type { PoolSettings } from '../engine/slots/pool-settings.ts'
import type { FairQueue } from '../engine/slots/queue.ts'
import { type InspectOptions, inspectProcess } from '../observe/inspect.ts'
import type { Log } from '../observe/log.ts'
import { counted } from '../observe/recent-runs.ts'
import type { EngineReport, FromRunner, RunnerTopic, ToRunner } from './protocol/messages.ts'
import type { Runs } from './runs/runs.ts'
import type { OpenStorage } from './storage/storage.ts'

/** Answers to the questions of a front about the runner. */
export type Inspect = (topic: RunnerTopic, options: InspectOptions) => Promise<object>

/** Slots that were made and that could not be made since the runner started. */
export interface SlotCounts {
  made: number
  failed: number
}

/** Answers the inspections of one front. */
export class InspectionRequests {
  readonly #inspect: Inspect
  readonly #send: (message: FromRunner) => void
  readonly #refuse: (request: number, error: unknown) => void

  constructor(
    inspect: Inspect = async () => ({}),
    send: (message: FromRunner) => void,
    refuse: (request: number, error: unknown) => void,
  ) {
    this.#inspect = inspect
    this.#send = send
    this.#refuse = refuse
  }

  handle({ request, topic, options }: Extract<ToRunner, { type: 'inspect' }>): void {
    this.#inspect(topic, options).then(
      (report) => this.#send({ type: 'inspected', request, report }),
      (error: unknown) => this.#refuse(request, error),
    )
  }
}

export interface InspectionDeps {
  machine: Pick<Machine, 'runtime' | 'runtimeVersion'>
  pool: SlotPool
  poolSettings: PoolSettings
  counts: SlotCounts
  queue: FairQueue
  runs: Runs
  storage: OpenStorage | undefined
  mountedMax: number
  log: Log
}

export const inspectionOf =
  (deps: InspectionDeps): Inspect =>
  async (topic, options) =>
    topic === 'engine' ? engineReport(deps) : inspectProcess(topic, options, deps.log)

function engineReport({
  machine,
  pool,
  poolSettings,
  counts,
  queue,
  runs,
  storage,
  mountedMax,
}: InspectionDeps): EngineReport {
  const { ready, idle, busy, undying } = pool.size
  const { slotsMax: max, slotsReady: ready_wanted } = poolSettings
  return {
    slots: { ready, idle, busy, undying, max, ready_wanted, ...counts, jails_waiting: pool.jailsWaiting },
    trouble: pool.trouble ?? null,
    queue: { running: queue.running, waiting: queue.waiting },
    runs: counted(runs.list().map(({ state }) => state)),
    runtime: machine.runtimeVersion,
    vulnerabilities: vulnerabilities(),
    storage: storage
      ? {
          mounted: storage.mounts.size.mounted,
          used: storage.mounts.size.used,
          mounted_max: mountedMax,
          free_bytes: storage.watch.room.freeBytes,
          reserve_bytes: storage.watch.room.reserveBytes,
        }
      : null,
    memory_is_short: memoryIsShort(),
  }
}

const vulnerabilitiesDir = '/sys/devices/system/cpu/vulnerabilities'

/**
 * Returns the processor vulnerabilities that the kernel does not mitigate: they weaken the isolation between slots.
 * https://docs.kernel.org/admin-guide/hw-vuln/
 */
function vulnerabilities(): string[] {
  try {
    const names = readdirSync(vulnerabilitiesDir)
    return names.filter((name) => readFileSync(`${vulnerabilitiesDir}/${name}`, 'latin1').startsWith('Vulnerable'))
  } catch {
    return [] // Not every kernel reports them.
  }
}
