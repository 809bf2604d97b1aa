import Type from 'typebox'
import type { BackgroundJob } from '../../base/background-job.ts'
import { Refusal } from '../../base/errors.ts'
import { assess } from '../../core/runtime/health.ts'
import type { Runtime } from '../../core/runtime/runtime.ts'
import { type RuntimeTool, runtimeTool } from './runtime-tool.ts'

/** The scheduler that has all tasks. */
const scheduler = 'front'
/** Tasks without which revoked keys or deleted data would stay: pausing them takes a confirmation. */
const guarded = new Set(['check_database', 'retire_keys', 'check_open_requests', 'settle_storage'])

const schedulerName = {
  schedulerName: Type.String({ maxLength: 64, description: 'Name of the scheduler, of scheduler_get_names.' }),
}
const taskName = {
  taskName: Type.String({ maxLength: 64, description: 'Name of the task, of scheduler_get_all_tasks.' }),
}

function taskNamed({ jobs }: Runtime, name: string): BackgroundJob {
  const job = Object.hasOwn(jobs, name) ? jobs[name] : undefined
  if (job === undefined)
    throw new Refusal('name_unknown', { what: `The task ${name}`, tool: 'scheduler_get_all_tasks' })
  return job
}

function requireScheduler(name: string): void {
  if (name !== scheduler)
    throw new Refusal('name_unknown', { what: `The scheduler ${name}`, tool: 'scheduler_get_names' })
}

const describe = (name: string, job: BackgroundJob) => {
  const { runs, failures, failing, lastStartedAt, lastMs, lastProblem, isRunning, isPaused } = job.state
  return {
    ...{ name, runs, failures, failing, running: isRunning, paused: isPaused },
    last_started_at: lastStartedAt,
    last_ms: lastMs === null ? null : Math.round(lastMs * 100) / 100,
    last_problem: lastProblem,
  }
}

const allTasks = ({ jobs }: Runtime) => Object.entries(jobs).map(([name, job]) => describe(name, job))

const summary = (runtime: Runtime) => {
  const tasks = allTasks(runtime)
  return {
    name: scheduler,
    tasks: tasks.length,
    running: tasks.filter(({ running }) => running).length,
    paused: tasks.filter(({ paused }) => paused).length,
    failing: tasks.filter(({ failing }) => failing > 0).map(({ name }) => name),
  }
}

/** Tools for the background jobs: retention, reapers, deliveries and checks. */
export const schedulerTools: readonly RuntimeTool[] = [
  runtimeTool({
    name: 'scheduler_get_all',
    title: 'Schedulers',
    description: 'The scheduler of the front with the number of its tasks, and those that are paused or fail.',
    run: (runtime) => ({ schedulers: [summary(runtime)] }),
  }),
  runtimeTool({
    name: 'scheduler_get_names',
    title: 'Names of schedulers',
    description: 'The names of the schedulers.',
    run: () => ({ names: [scheduler] }),
  }),
  runtimeTool({
    name: 'scheduler_get',
    title: 'One scheduler',
    description: 'One scheduler with its tasks.',
    input: schedulerName,
    run: (runtime, { schedulerName: name }) => {
      requireScheduler(name)
      return { ...summary(runtime), all_tasks: allTasks(runtime) }
    },
  }),
  runtimeTool({
    name: 'scheduler_has',
    title: 'Look up a scheduler',
    description: 'Whether there is a scheduler of this name.',
    input: schedulerName,
    run: (_, { schedulerName: name }) => ({ has: name === scheduler }),
  }),
  runtimeTool({
    name: 'scheduler_get_all_tasks',
    title: 'Tasks',
    description: 'Every background task with its runs, failures, last start, last duration and last problem.',
    aliases: ['scheduler_get_all_task_stats'],
    run: (runtime) => ({ tasks: allTasks(runtime) }),
  }),
  runtimeTool({
    name: 'scheduler_get_task_info',
    title: 'One task',
    description: 'Runs, failures, last start and last problem of one task.',
    aliases: ['scheduler_get_task_stats'],
    input: taskName,
    run: (runtime, { taskName: name }) => describe(name, taskNamed(runtime, name)),
  }),
  runtimeTool({
    name: 'scheduler_get_health',
    title: 'Health of the tasks',
    description: 'Tasks that fail or are paused, with suggested actions.',
    run: async (runtime) => assess('schedulers', await runtime.figures()),
  }),
  runtimeTool({
    name: 'scheduler_run_task',
    title: 'Run a task now',
    description: 'Runs one background task now and waits for its end.',
    effect: 'write',
    input: taskName,
    run: async (runtime, { taskName: name }) => {
      await taskNamed(runtime, name).run()
      return describe(name, taskNamed(runtime, name))
    },
  }),
  runtimeTool({
    name: 'scheduler_pause_task',
    title: 'Pause a task',
    description: `Pauses one task until it is resumed or the server starts again. ${[...guarded].join(', ')} require confirm.`,
    effect: 'write',
    input: {
      ...taskName,
      confirm: Type.Optional(
        Type.Boolean({ description: 'Required for tasks that revoke access or finish deletions.' }),
      ),
    },
    run: (runtime, { taskName: name, confirm = false }) => {
      const task = taskNamed(runtime, name)
      if (guarded.has(name) && !confirm) {
        throw new Refusal('invalid_argument', { field: 'confirm', problem: `must be true to pause ${name}` })
      }
      task.pause()
      return describe(name, task)
    },
  }),
  runtimeTool({
    name: 'scheduler_resume_task',
    title: 'Resume a task',
    description: 'Resumes a paused task.',
    effect: 'write',
    input: taskName,
    run: (runtime, { taskName: name }) => {
      taskNamed(runtime, name).resume()
      return describe(name, taskNamed(runtime, name))
    },
  }),
]
