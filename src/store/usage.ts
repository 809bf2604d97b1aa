import { type Kysely, sql, type Transaction } from 'kysely'
import type { RunResult } from '../base/run.ts'
import { Compiled } from './compiled.ts'
import type { RunRow, Store } from './store.ts'
import type { Tables } from './tables.ts'

/** Counts a run that has ended, within the transaction that writes its ending. */
export type CountRun = (
  transaction: Transaction<Tables>,
  run: Pick<RunRow, 'orgId' | 'keyId'>,
  at: string,
  result: RunResult | null,
) => Promise<void>

/** Returns the day of a time, by which usage is counted. @param at ISO 8601, UTC. */
export const dayOf = (at: string): string => at.slice(0, 'yyyy-mm-dd'.length)

const add = new Compiled((db) =>
  db
    .insertInto('usage')
    .values({ orgId: '', day: '', keyId: '', runs: 1, runMs: 0, cpuMs: 0, refused: 0, sandboxMs: 0 })
    .onConflict((conflict) =>
      conflict.columns(['orgId', 'day', 'keyId']).doUpdateSet({
        runs: sql<number>`usage.runs + excluded.runs`,
        runMs: sql<number>`usage.run_ms + excluded.run_ms`,
        cpuMs: sql<number>`usage.cpu_ms + excluded.cpu_ms`,
      }),
    ),
)

export const countRun: CountRun = async (transaction, { orgId, keyId }, at, result) => {
  const measured = [Math.round(result?.durationMs ?? 0), Math.round(result?.cpuTimeMs ?? 0)]
  await add.rows(transaction, [orgId, dayOf(at), keyId, 1, ...measured, 0, 0])
}

export const usage = (db: Kysely<Tables>): Store['usage'] => ({
  list(orgId, fromDay, untilDay) {
    return db
      .selectFrom('usage')
      .selectAll()
      .where('orgId', '=', orgId)
      .where('day', '>=', fromDay)
      .where('day', '<', untilDay)
      .orderBy('day')
      .orderBy('keyId')
      .execute()
  },

  async addRefused(counts) {
    await db.transaction().execute(async (transaction) => {
      for (const count of counts) {
        await transaction
          .insertInto('usage')
          .values({ ...count, runs: 0, runMs: 0, cpuMs: 0, sandboxMs: 0 })
          .onConflict((conflict) =>
            conflict
              .columns(['orgId', 'day', 'keyId'])
              .doUpdateSet({ refused: sql<number>`usage.refused + excluded.refused` }),
          )
          .execute()
      }
    })
  },
})
