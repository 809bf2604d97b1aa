import type { Kysely } from 'kysely'
import type { Ending, RunResult } from '../base/run.ts'
import type { RunRow, Store } from './store.ts'
import type { StoredRun, Tables } from './tables.ts'

export const runs = (db: Kysely<Tables>): Store['runs'] => ({
  async begin(run) {
    await db
      .insertInto('runs')
      .values({ ...run, detached: run.detached ? 1 : 0, finishedAt: null, ending: null, result: null })
      .execute()
  },

  async finish(id, finishedAt, ending, result) {
    const changed = await db
      .updateTable('runs')
      .set({ finishedAt, ending: JSON.stringify(ending), result: result === null ? null : JSON.stringify(result) })
      .where('id', '=', id)
      .where('finishedAt', 'is', null)
      .executeTakeFirst()
    return changed.numUpdatedRows === 1n
  },

  async get(id) {
    const stored = await db.selectFrom('runs').selectAll().where('id', '=', id).executeTakeFirst()
    return stored && toRow(stored)
  },

  async unfinished() {
    const stored = await db
      .selectFrom('runs')
      .selectAll()
      .where('finishedAt', 'is', null)
      .orderBy('createdAt')
      .execute()
    return stored.map(toRow)
  },
})

const toRow = (stored: StoredRun): RunRow => ({
  ...stored,
  detached: stored.detached === 1,
  ending: stored.ending === null ? null : (JSON.parse(stored.ending) as Ending),
  result: stored.result === null ? null : (JSON.parse(stored.result) as RunResult),
})
