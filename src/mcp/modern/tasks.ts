import { Refusal } from '../../base/errors.ts'
import { type Task, taskLifeMs } from '../../core/runs/tasks.ts'
import { executionResult } from '../../tools/execute/result.ts'
import type { McpContext } from '../handle.ts'
import { isObject, own, type Params } from '../json-rpc.ts'
import { errorObject } from './codec.ts'
import type { LiveTask } from './live-tasks.ts'

/** https://github.com/modelcontextprotocol/ext-tasks */
export const tasksExtension = 'io.modelcontextprotocol/tasks'

/** Soon enough for who waits, rare enough for who serves. */
const pollIntervalMs = 1_000

/** A task as it is announced: nothing of its outcome. */
export function taskOnTheWire(row: Task): object {
  return {
    taskId: row.id,
    status: row.status,
    createdAt: row.createdAt,
    lastUpdatedAt: row.updatedAt,
    ttlMs: taskLifeMs,
    pollIntervalMs,
  }
}

/** A task with what belongs to its status. @throws Refusal `task_unknown`. */
export async function getTask(params: Params, _declared: true, context: McpContext): Promise<object> {
  return describeTask(taskId(params), context)
}

/** @throws Refusal `task_unknown`. */
export async function describeTask(id: string, context: McpContext): Promise<object> {
  const { core, caller, tasks } = context
  const known = await core.tasks.get(caller, id)
  const row = core.tasks.isOrphan(known) ? await adopt(known, context) : known
  const questions = tasks.get(row.id)?.questions ?? {}
  if (row.status === 'working' && Object.keys(questions).length > 0) {
    return { ...taskOnTheWire(row), status: 'input_required', inputRequests: questions }
  }
  const outcome = row.outcome === null ? undefined : (JSON.parse(row.outcome) as object)
  switch (row.status) {
    case 'working':
    case 'cancelled':
      return taskOnTheWire(row)
    case 'completed':
      return { ...taskOnTheWire(row), result: outcome }
    case 'failed':
      return { ...taskOnTheWire(row), statusMessage: (outcome as { message: string }).message, error: outcome }
  }
}

/** The outcome of a task whose process is gone: that of its run, which went on without it, or that there is none. */
async function adopt(row: Task, { core, caller, log, closing }: McpContext): Promise<Task> {
  const execution =
    row.runId === null ? undefined : await core.waitForExecution(caller, row.runId, { waitMs: 0, signal: closing })
  if (execution?.ending === null) return row
  if (execution) await core.tasks.settle(row.id, 'completed', executionResult(execution))
  else {
    const lost = new Refusal('unavailable', { reason: 'the server was restarted while this task was working' })
    await core.tasks.settle(row.id, 'failed', errorObject(lost, log))
  }
  return core.tasks.get(caller, row.id)
}

/** Takes answers to what the task asks. @throws Refusal `task_unknown`, `input_invalid`. */
export async function updateTask(params: Params, _declared: true, context: McpContext): Promise<object> {
  const { core, caller, tasks } = context
  const responses = own(params, 'inputResponses')
  if (!isObject(responses))
    throw new Refusal('invalid_argument', { field: 'inputResponses', problem: 'must be an object' })
  const row = await core.tasks.get(caller, taskId(params))
  tasks.get(row.id)?.answer(responses)
  return {}
}

/** A task that has ended already stays as it is. @throws Refusal `task_unknown`. */
export async function cancelTask(params: Params, _declared: true, context: McpContext): Promise<object> {
  const { core, caller, tasks } = context
  const row = await core.tasks.get(caller, taskId(params))
  if (!(await core.tasks.settle(row.id, 'cancelled', null))) return {}
  const live = tasks.get(row.id)
  live?.cancel()
  if (!live && row.runId !== null) await cancelRun(row.runId, context)
  context.changes.tell({ kind: 'task', taskId: row.id })
  return {}
}

async function cancelRun(runId: string, { core, caller }: McpContext): Promise<void> {
  try {
    await core.cancel(caller, runId)
  } catch (error) {
    // It ended by itself, or with its runner.
    if (!(error instanceof Refusal)) throw error
  }
}

type Settled = { status: 'completed'; outcome: object } | { status: 'failed'; error: unknown }

/** Writes the outcome of a task whose work is over. */
export async function settleTask(task: LiveTask, settled: Settled, { core, tasks, log }: McpContext): Promise<void> {
  const outcome = settled.status === 'completed' ? settled.outcome : errorObject(settled.error, log)
  await core.tasks.settle(task.id, settled.status, outcome)
  tasks.close(task.id)
}

function taskId(params: Params): string {
  const id = own(params, 'taskId')
  if (typeof id !== 'string') throw new Refusal('invalid_argument', { field: 'taskId', problem: 'must be a string' })
  return id
}
