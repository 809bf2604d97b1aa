import type { Kysely } from 'kysely'
import type { Tables } from './tables.ts'

declare module './tables.ts' {
  interface Tables {
    usedLinks: { id: string; expiresAt: string }
  }
}

/** The IDs of used single-use links, each until the link expires. */
export interface UsedLinkRows {
  /** Marks a link as used. @returns whether this was its first use. */
  use(id: string, expiresAt: string): Promise<boolean>
  giveBack(id: string): Promise<void>
}

export const usedLinks = (db: Kysely<Tables>): UsedLinkRows => ({
  async use(id, expiresAt) {
    const inserted = await db
      .insertInto('usedLinks')
      .values({ id, expiresAt })
      .onConflict((conflict) => conflict.column('id').doNothing())
      .executeTakeFirst()
    return inserted.numInsertedOrUpdatedRows === 1n
  },

  async giveBack(id) {
    await db.deleteFrom('usedLinks').where('id', '=', id).execute()
  },
})
