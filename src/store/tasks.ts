import type { Kysely } from 'kysely'
import type { DurableTransaction } from './durably.ts'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const tasks = (db: Kysely<Tables>, durably: DurableTransaction): Store['tasks'] => ({
  async create(task) {
    await durably((transaction) => transaction.insertInto('tasks').values(task).execute())
  },

  get: (id) => db.selectFrom('tasks').selectAll().where('id', '=', id).executeTakeFirst(),

  async settle(id, updatedAt, status, outcome) {
    const changed = await db
      .updateTable('tasks')
      .set({ status, outcome, updatedAt })
      .where('id', '=', id)
      .where('status', '=', 'working')
      .executeTakeFirst()
    return changed.numUpdatedRows === 1n
  },
})
