import type { Transaction } from 'kysely'
import type { Store } from './store.ts'
import type { Tables } from './tables.ts'

/** Replaces every sealed value; see `Store.reseal`. */
export async function reseal(db: Transaction<Tables>, again: Parameters<Store['reseal']>[0]): Promise<void> {
  for (const row of await db.selectFrom('secrets').selectAll().execute()) {
    await db
      .updateTable('secrets')
      .set({ value: again.secret(row) })
      .where('name', '=', row.name)
      .execute()
  }
  for (const row of await db.selectFrom('keys').selectAll().where('env', 'is not', null).execute()) {
    await db
      .updateTable('keys')
      .set({ env: again.env(row) })
      .where('id', '=', row.id)
      .execute()
  }
  for (const row of await db.selectFrom('storedProfiles').selectAll().execute()) {
    await db
      .updateTable('storedProfiles')
      .set({ settings: again.profile(row) })
      .where('orgId', '=', row.orgId)
      .where('name', '=', row.name)
      .execute()
  }
  for (const row of await db.selectFrom('upstreams').selectAll().execute()) {
    await db
      .updateTable('upstreams')
      .set({ secrets: again.upstream(row) })
      .where('id', '=', row.id)
      .execute()
  }
}
