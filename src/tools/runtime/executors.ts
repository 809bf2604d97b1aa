import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { assess } from '../../core/runtime/health.ts'
import { type Runtime, recentMs } from '../../core/runtime/runtime.ts'
import { type RuntimeTool, runtimeTool } from './runtime-tool.ts'

/** What the runner knows of its slots. */
type Engine = NonNullable<Awaited<ReturnType<Runtime['engine']>>>

const executorNames = ['queue', 'slots', 'storage'] as const
const name = { name: Type.String({ maxLength: 64, description: 'Name of the executor, of executor_get_names.' }) }

async function engineOf(runtime: Runtime): Promise<Engine> {
  const engine = await runtime.engine()
  if (engine === null) throw new Refusal('unavailable', { reason: runtime.notReady ?? 'no runner is connected' })
  return engine
}

/** Describes what runs wait for: a place, a slot, a mounted filesystem. */
function executorsOf(runtime: Runtime, { slots, queue, storage }: Engine) {
  const settingOf = (name: string) => runtime.facts.settings.find((setting) => setting.name === name)?.value ?? null
  const { queue_wait_p50_ms, queue_wait_p99_ms } = runtime.metrics.recent.runs.figures(recentMs)
  return {
    queue: {
      ...{ active: queue.running, max: settingOf('runs_max'), queued: queue.waiting },
      ...{ queued_per_org_max: settingOf('queue_per_org'), wait_max_ms: runtime.facts.queueWaitMaxMs },
      ...{ queue_wait_p50_ms, queue_wait_p99_ms },
    },
    slots: { active: slots.busy, idle: slots.idle, ready: slots.ready, max: slots.max, undying: slots.undying },
    storage: storage && { active: storage.used, idle: storage.mounted - storage.used, max: storage.mounted_max },
  }
}

/** Tools for the queue, the slots and the mounted filesystems of the runner. */
export const executorTools: readonly RuntimeTool[] = [
  runtimeTool({
    name: 'executor_get_all',
    title: 'Executors',
    description:
      'The queue of runs, the slots and the mounted filesystems: active, waiting, limits and times in the queue.',
    run: async (runtime) => ({ executors: executorsOf(runtime, await engineOf(runtime)) }),
  }),
  runtimeTool({
    name: 'executor_get_names',
    title: 'Names of executors',
    description: 'The names of the executors.',
    run: () => ({ names: executorNames }),
  }),
  runtimeTool({
    name: 'executor_get_info',
    title: 'One executor',
    description: 'Figures of one executor.',
    input: name,
    run: async (runtime, { name: wanted }) => {
      const known = executorNames.find((one) => one === wanted)
      if (known === undefined)
        throw new Refusal('name_unknown', { what: `The executor ${wanted}`, tool: 'executor_get_names' })
      return { name: known, figures: executorsOf(runtime, await engineOf(runtime))[known] }
    },
  }),
  runtimeTool({
    name: 'executor_get_stats',
    title: 'Slots and runs',
    description: 'Slots that were made or could not be made, why, and the latest runs by ending and language.',
    run: async (runtime) => {
      const { slots, trouble, runs, runtime: version } = await engineOf(runtime)
      return { ...{ slots, trouble, runtime: version, runs }, latest: runtime.metrics.recent.runs.figures(recentMs) }
    },
  }),
  runtimeTool({
    name: 'executor_get_health',
    title: 'Health of the slots and the queue',
    description: 'Issues of slots and of the queue, with suggested actions.',
    run: async (runtime) => assess('executors', await runtime.figures()),
  }),
  runtimeTool({
    name: 'executor_get_health_summary',
    title: 'Scores of the executors',
    description: 'Status and score of slots and queue, of runs, and of the disks.',
    run: async (runtime) => {
      const figures = await runtime.figures()
      const of = (subsystem: 'executors' | 'sandboxes' | 'disks') => {
        const { status, score, issues } = assess(subsystem, figures)
        return { status, score, codes: issues.map(({ code }) => code) }
      }
      return { executors: of('executors'), sandboxes: of('sandboxes'), disks: of('disks') }
    },
  }),
]
