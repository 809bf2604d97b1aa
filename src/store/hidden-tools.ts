import type { Kysely } from 'kysely'
import { Compiled } from './compiled.ts'
import type { Tables } from './tables.ts'

declare module './tables.ts' {
  interface Tables {
    hiddenTools: { orgId: string; tool: string }
  }
}

/** The tools that are hidden from organizations. */
export interface HiddenToolRows {
  /** Lists the hidden tools of an organization by name. */
  list(orgId: string): Promise<string[]>
  hide(orgId: string, tool: string): Promise<void>
  show(orgId: string, tool: string): Promise<void>
}

const list = new Compiled((db) => db.selectFrom('hiddenTools').select('tool').where('orgId', '=', '').orderBy('tool'))

export const hiddenTools = (db: Kysely<Tables>): HiddenToolRows => ({
  async list(orgId) {
    const rows = await list.rows(db, [orgId])
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
