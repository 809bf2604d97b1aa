import type { Transaction } from 'kysely'
import type { StoredProfileRow } from './admin-rows.ts'
import type { NetworkSecretRow } from './network-secrets.ts'
import type { SandboxRow } from './sandbox-rows.ts'
import type { KeyRow } from './store.ts'
import type { Tables } from './tables.ts'
import type { UpstreamCredentialRow } from './upstream-credentials.ts'
import type { UpstreamRow } from './upstream-rows.ts'

/** Each encrypts the sealed values of one row again. `null` stays `null`. */
export interface Reseal {
  secret(row: { name: string; value: string }): string
  env(row: KeyRow): string | null
  profile(row: StoredProfileRow): string
  upstream(row: UpstreamRow): string
  upstreamCredential(row: UpstreamCredentialRow): Pick<UpstreamCredentialRow, 'secrets' | 'pendingLogin'>
  sandbox(row: SandboxRow): string | null
  networkSecret(row: NetworkSecretRow): string
}

/** Replaces every sealed value; see `Store.reseal`. */
export async function reseal(db: Transaction<Tables>, again: Reseal): Promise<void> {
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
  for (const row of await db.selectFrom('upstreamCredentials').selectAll().execute()) {
    await db
      .updateTable('upstreamCredentials')
      .set(again.upstreamCredential(row))
      .where('upstreamId', '=', row.upstreamId)
      .where('keyId', '=', row.keyId)
      .execute()
  }
  for (const row of await db.selectFrom('networkSecrets').selectAll().execute()) {
    await db
      .updateTable('networkSecrets')
      .set({ value: again.networkSecret(row) })
      .where('orgId', '=', row.orgId)
      .where('name', '=', row.name)
      .execute()
  }
  for (const row of await db.selectFrom('sandboxes').selectAll().where('env', 'is not', null).execute()) {
    await db
      .updateTable('sandboxes')
      .set({ env: again.sandbox(row) })
      .where('id', '=', row.id)
      .execute()
  }
}
