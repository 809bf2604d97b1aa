import type { Kysely, Transaction } from 'kysely'
import type { DeliveryRow, RunExtras } from './run-history.ts'
import type { RunRow, Store } from './store.ts'
import type { Tables } from './tables.ts'

export const deliveries = (db: Kysely<Tables>): Store['deliveries'] => ({
  get: (runId) => db.selectFrom('deliveries').selectAll().where('runId', '=', runId).executeTakeFirst(),

  due(now, { busyHosts, busyOrgs }, limit) {
    let query = db.selectFrom('deliveries').selectAll().where('status', '=', 'due').where('dueAt', '<=', now)
    if (busyHosts.length > 0) query = query.where('host', 'not in', busyHosts)
    if (busyOrgs.length > 0) query = query.where('orgId', 'not in', busyOrgs)
    return query.orderBy('dueAt').orderBy('id').limit(limit).execute()
  },

  async take({ id, dueAt }, until) {
    const taken = await db
      .updateTable('deliveries')
      .set({ dueAt: until })
      .where('id', '=', id)
      .where('status', '=', 'due')
      .where('dueAt', '=', dueAt)
      .executeTakeFirst()
    return taken.numUpdatedRows === 1n
  },

  async settle(id, changes) {
    await db.updateTable('deliveries').set(changes).where('id', '=', id).execute()
  },

  async outstanding(orgId, max) {
    const some = await db
      .selectFrom('deliveries')
      .select('id')
      .where('orgId', '=', orgId)
      .where('status', 'in', ['waiting', 'due'])
      .limit(max)
      .execute()
    return some.length
  },

  async drop(runId) {
    await db.deleteFrom('deliveries').where('runId', '=', runId).execute()
  },
})

/** The outbox row that is written with the row of a run. */
export async function promiseDelivery(
  db: Transaction<Tables>,
  { id: runId, orgId, createdAt }: Pick<RunRow, 'id' | 'orgId' | 'createdAt'>,
  delivery: NonNullable<RunExtras['delivery']>,
): Promise<void> {
  const row: DeliveryRow = {
    ...delivery,
    runId,
    orgId,
    status: 'waiting',
    attempts: 0,
    dueAt: null,
    problem: null,
    updatedAt: createdAt,
  }
  await db.insertInto('deliveries').values(row).execute()
}

/** Makes the delivery of a run due; part of the transaction that writes the ending. */
export async function makeDue(db: Transaction<Tables>, runId: string, at: string): Promise<void> {
  await db
    .updateTable('deliveries')
    .set({ status: 'due', dueAt: at, updatedAt: at })
    .where('runId', '=', runId)
    .where('status', '=', 'waiting')
    .execute()
}
