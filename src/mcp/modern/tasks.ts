import { Refusal } from '../../base/errors.ts'
import { type Task, taskLifeMs } from '../../core/runs/tasks.ts'
import { executionResult, outputLimit } from '../../tools/execute/result.ts'
import type { McpContext } from '../handle.ts'
import { errorObject, toRefusal } from '../json-rpc/encode.ts'
import type { Params } from '../json-rpc/message.ts'
import { objectParam, stringParam } from '../params.ts'
import { toClientResult } from '../result-options.ts'
import type { Envelope } from './envelope.ts'
import type { LiveTask } from './live-tasks.ts'

/** https://github.com/modelcontextprotocol/ext-tasks */
export const tasksExtension = 'io.modelcontextprotocol/tasks'

/** How often clients should poll. */
const pollIntervalMs = 1_000

/** Returns a task without its outcome. */
export function toWireTask(row: Task): object {
  return {
    taskId: row.id,
    status: row.status,
    createdAt: row.createdAt,
    lastUpdatedAt: row.updatedAt,
    ttlMs: taskLifeMs,
    pollIntervalMs,
  }
}

/** @throws Refusal `capability_missing` for a client that did not declare the extension. */
export function requireTasks({ client }: Envelope): void {
  if (!client.hasExtension(tasksExtension)) throw new Refusal('capability_missing', { capability: tasksExtension })
}

/** Answers `tasks/get`. @throws Refusal `task_unknown`. */
export async function getTask(params: Params, context: McpContext): Promise<object> {
  return describeTask(stringParam(params, 'taskId'), context)
}

/** Returns a task with its outcome or its pending requests. @throws Refusal `task_unknown`. */
export async function describeTask(id: string, context: McpContext): Promise<object> {
  const { core, caller, tasks } = context
  const found = await core.tasks.get(caller, id)
  const row = core.tasks.isOrphan(found) ? await settleOrphan(found, context) : found
  const inputRequests = tasks.get(row.id)?.pendingInput ?? {}
  if (row.status === 'working' && Object.keys(inputRequests).length > 0) {
    return { ...toWireTask(row), status: 'input_required', inputRequests }
  }
  const outcome = row.outcome === null ? undefined : (JSON.parse(row.outcome) as object)
  switch (row.status) {
    case 'working':
    case 'cancelled':
      return toWireTask(row)
    case 'completed':
      return { ...toWireTask(row), result: outcome }
    case 'failed':
      return { ...toWireTask(row), statusMessage: (outcome as { message: string }).message, error: outcome }
  }
}

/** Settles a task whose process has exited: with the result of its run, which continued, or as failed without one. */
async function settleOrphan(row: Task, { core, caller, offer, closing, results, baseUrl }: McpContext): Promise<Task> {
  const execution =
    row.runId === null ? undefined : await core.waitForExecution(caller, row.runId, { waitMs: 0, signal: closing })
  if (execution?.ending === null) return row
  if (execution)
    await core.tasks.settle(
      row.id,
      'completed',
      toClientResult(executionResult(execution, outputLimit(caller, offer.has)), results, baseUrl),
    )
  else {
    const lost = new Refusal('unavailable', { reason: 'the server was restarted while this task was working' })
    await core.tasks.settle(row.id, 'failed', errorObject(lost))
  }
  return core.tasks.get(caller, row.id)
}

/** Answers `tasks/update`: receives responses to pending requests. @throws Refusal `task_unknown`, `input_invalid`. */
export async function updateTask(params: Params, context: McpContext): Promise<object> {
  const { core, caller, tasks } = context
  const responses = objectParam(params, 'inputResponses')
  const row = await core.tasks.get(caller, stringParam(params, 'taskId'))
  tasks.get(row.id)?.receive(responses)
  return {}
}

/** Answers `tasks/cancel`. A task that has ended does not change. @throws Refusal `task_unknown`. */
export async function cancelTask(params: Params, context: McpContext): Promise<object> {
  const { core, caller, tasks } = context
  const row = await core.tasks.get(caller, stringParam(params, 'taskId'))
  if (!(await core.tasks.settle(row.id, 'cancelled', null))) return {}
  const live = tasks.get(row.id)
  live?.cancel()
  if (!live && row.runId !== null) await cancelRun(row.runId, context)
  context.changes.publish({ kind: 'task', taskId: row.id })
  return {}
}

async function cancelRun(runId: string, { core, caller }: McpContext): Promise<void> {
  try {
    await core.cancel(caller, runId)
  } catch (error) {
    // The run has ended in the meantime, or its runner has.
    if (!(error instanceof Refusal)) throw error
  }
}

type Settled = { status: 'completed'; outcome: object } | { status: 'failed'; error: unknown }

/** Stores the outcome of a task whose work has ended. */
export async function settleTask(task: LiveTask, settled: Settled, { core, tasks, log }: McpContext): Promise<void> {
  const outcome = settled.status === 'completed' ? settled.outcome : errorObject(toRefusal(settled.error, log))
  await core.tasks.settle(task.id, settled.status, outcome)
  tasks.close(task.id)
}
