import type { Kysely } from 'kysely'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

export const hiddenTools = (db: Kysely<Tables>): Store['hiddenTools'] => ({
  async list(orgId) {
    const rows = await db.selectFrom('hiddenTools').select('tool').where('orgId', '=', orgId).orderBy('tool').execute()
    return rows.map(({ tool }) => tool)
  },

  async hide(orgId, tool) {
    await db
      .insertInto('hiddenTools')
      .values({ orgId, tool })
      .onConflict((conflict) => conflict.columns(['orgId', 'tool']).doNothing())
      .execute()
  },

  async show(orgId, tool) {
    await db.deleteFrom('hiddenTools').where('orgId', '=', orgId).where('tool', '=', tool).execute()
  },
})
