import type { Kysely, Transaction } from 'kysely'
import { Refusal } from '../base/errors.ts'
import { Compiled } from './compiled.ts'
import type { DeliveryRow, RunExtras } from './run-history.ts'
import type { RunRow, Store } from './store.ts'
import type { Tables } from './tables.ts'

/** Runs four times in a second, usually without other conditions. */
const firstDue = new Compiled((db) => dueOf(db, '', 1))

const dueOf = (db: Kysely<Tables>, now: string, limit: number) =>
  db
    .selectFrom('deliveries')
    .selectAll()
    .where('status', '=', 'due')
    .where('dueAt', '<=', now)
    .orderBy('dueAt')
    .orderBy('id')
    .limit(limit)

export const deliveries = (db: Kysely<Tables>): Store['deliveries'] => ({
  get: (runId) => db.selectFrom('deliveries').selectAll().where('runId', '=', runId).executeTakeFirst(),

  due(now, { busyHosts, busyOrgs }, limit) {
    if (busyHosts.length === 0 && busyOrgs.length === 0) return firstDue.rows(db, ['due', now, limit])
    let query = dueOf(db, now, limit)
    if (busyHosts.length > 0) query = query.where('host', 'not in', busyHosts)
    if (busyOrgs.length > 0) query = query.where('orgId', 'not in', busyOrgs)
    return query.execute()
  },

  async advance(now, latest) {
    await db
      .updateTable('deliveries')
      .set({ dueAt: now })
      .where('status', '=', 'due')
      .where('dueAt', '>', latest)
      .execute()
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

  outstanding: (orgId, max) => outstanding(db, orgId, max),

  async drop(runId) {
    await db.deleteFrom('deliveries').where('runId', '=', runId).execute()
  },
})

/** Time after which a client may retry if its organization has too many pending deliveries. */
const fullSeconds = 30

export const webhooksFull = (amount: number): Refusal =>
  new Refusal('webhooks_full', { amount, retryAfterSeconds: fullSeconds })

async function outstanding(db: Kysely<Tables>, orgId: string, max: number): Promise<number> {
  const some = await db
    .selectFrom('deliveries')
    .select('id')
    .where('orgId', '=', orgId)
    .where('status', 'in', ['waiting', 'due'])
    .limit(max)
    .execute()
  return some.length
}

/** Inserts the delivery of a run, in the transaction that inserts the run. @throws Refusal webhooks_full. */
export async function promiseDelivery(
  db: Transaction<Tables>,
  { id: runId, orgId, createdAt }: Pick<RunRow, 'id' | 'orgId' | 'createdAt'>,
  { pendingMax, ...delivery }: NonNullable<RunExtras['delivery']>,
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
  if ((await outstanding(db, orgId, pendingMax + 1)) > pendingMax) throw webhooksFull(pendingMax)
}

/** Makes the delivery of a run due, in the transaction that writes the ending. */
export async function makeDue(db: Transaction<Tables>, runId: string, at: string): Promise<void> {
  await db
    .updateTable('deliveries')
    .set({ status: 'due', dueAt: at, updatedAt: at })
    .where('runId', '=', runId)
    .where('status', '=', 'waiting')
    .execute()
}
