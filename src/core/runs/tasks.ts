import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import type { Store, TaskRow } from '../../store/store.ts'
import type { Caller } from '../caller.ts'

/** A task as it is stored. */
export type Task = TaskRow

/** Lifetime of a task, in milliseconds. A run takes at most an hour; its result is available for the rest of the day. */
export const taskLifeMs = 24 * 60 * 60 * 1000

/** Capabilities that the verbs of tasks require: a task is the result of a run that the same key started. */
export const taskNeeds = { create: 'execute', get: 'execute' } as const

/** Calls whose result is fetched later. A task is stored before it is returned, and belongs to one key. */
export class Tasks {
  readonly #store: Store
  /** Identifies this process in the tasks that it creates. */
  readonly #frontId = newId('front')

  constructor(store: Store) {
    this.#store = store
  }

  /** Creates a task. @param runId the run whose result it has, if any: every front can then return the result. */
  async create({ orgId, keyId }: Caller, runId: string | undefined): Promise<TaskRow> {
    const createdAt = timestamp()
    const task: TaskRow = {
      id: newId('task'),
      orgId,
      keyId,
      runId: runId ?? null,
      frontId: this.#frontId,
      status: 'working',
      outcome: null,
      createdAt,
      updatedAt: createdAt,
      expiresAt: new Date(Date.parse(createdAt) + taskLifeMs).toISOString(),
    }
    await this.#store.tasks.create(task)
    return task
  }

  /** Returns a task. @throws Refusal `task_unknown`, also for an expired task and a task of another key. */
  async get({ orgId, keyId }: Caller, id: string): Promise<TaskRow> {
    const task = await this.#store.tasks.get(id)
    const known = task !== undefined && task.orgId === orgId && task.keyId === keyId && task.expiresAt > timestamp()
    if (!known) throw new Refusal('task_unknown', { task: id.slice(0, 64) })
    return task
  }

  /** Whether the process that worked on a task has ended, so that the task gets no result. */
  isOrphan(task: TaskRow): boolean {
    return task.status === 'working' && task.frontId !== this.#frontId
  }

  /** Ends a task, unless it has ended. @param outcome its result or error. @returns whether this call ended it. */
  async settle(id: string, status: Exclude<TaskRow['status'], 'working'>, outcome: object | null): Promise<boolean> {
    return this.#store.tasks.settle(id, timestamp(), status, outcome === null ? null : JSON.stringify(outcome))
  }
}
