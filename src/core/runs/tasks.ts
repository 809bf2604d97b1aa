import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import type { Store, TaskRow } from '../../store/store.ts'
import type { Caller } from '../caller.ts'

/** A task as its row has it. */
export type Task = TaskRow

/** A run lasts an hour at most; its outcome can be fetched for the rest of a day. */
export const taskLifeMs = 24 * 60 * 60 * 1000

/** What the verbs of tasks need: a task is the outcome of a run that the same key started. */
export const taskNeeds = { create: 'execute', get: 'execute' } as const

/** Calls whose outcome is asked for later. A task is written before anybody hears of it, and belongs to one key. */
export class Tasks {
  readonly #store: Store
  /** Names this process in the tasks that it makes. */
  readonly #frontId = newId('front')

  constructor(store: Store) {
    this.#store = store
  }

  /** @param runId the run that the outcome comes from, if one does: then any front can tell it. */
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

  /** @throws Refusal `task_unknown`, also for a task of another key and one that has expired. */
  async get({ orgId, keyId }: Caller, id: string): Promise<TaskRow> {
    const task = await this.#store.tasks.get(id)
    const known = task !== undefined && task.orgId === orgId && task.keyId === keyId && task.expiresAt > timestamp()
    if (!known) throw new Refusal('task_unknown', { task: id.slice(0, 64) })
    return task
  }

  /** Whether the work of a task went on in a process that is no more, so that nobody will tell its outcome. */
  isOrphan(task: TaskRow): boolean {
    return task.status === 'working' && task.frontId !== this.#frontId
  }

  /** Ends a task once. @param outcome its result or its error. */
  async settle(id: string, status: Exclude<TaskRow['status'], 'working'>, outcome: object | null): Promise<boolean> {
    return this.#store.tasks.settle(id, timestamp(), status, outcome === null ? null : JSON.stringify(outcome))
  }
}
