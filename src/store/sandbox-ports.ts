import type { Kysely } from 'kysely'
import type { PortAccess } from '../base/sandbox.ts'
import type { Tables } from './tables.ts'

/** A port of a sandbox that is reached through the server. */
export interface SandboxPortRow {
  /** Part of its address. */
  id: string
  sandboxId: string
  port: number
  access: PortAccess
  /** The key that published it; it ends with the key. */
  keyId: string
  createdAt: string
  expiresAt: string
}

declare module './tables.ts' {
  interface Tables {
    sandboxPorts: SandboxPortRow
  }
}

/** Adds the published ports of sandboxes. */
export async function addSandboxPorts(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('sandboxPorts')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('sandboxId', 'text', (column) => column.notNull())
    .addColumn('port', 'integer', (column) => column.notNull())
    .addColumn('access', 'text', (column) => column.notNull())
    .addColumn('keyId', 'text', (column) => column.notNull())
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('expiresAt', 'text', (column) => column.notNull())
    .addUniqueConstraint('sandboxPortsByPort', ['sandboxId', 'port'])
    .execute()
}

export interface SandboxPortRows {
  /** Inserts a port, or gives the one with its number a new access, key and expiry. @returns the row, with its ID. */
  publish(row: SandboxPortRow): Promise<SandboxPortRow>
  /** Lists the ports of a sandbox by number. */
  list(sandboxId: string): Promise<SandboxPortRow[]>
  byId(id: string): Promise<SandboxPortRow | undefined>
  /** @returns the row that was removed. */
  withdraw(sandboxId: string, port: number): Promise<SandboxPortRow | undefined>
}

export const sandboxPorts = (db: Kysely<Tables>): SandboxPortRows => ({
  publish: (row) =>
    db
      .insertInto('sandboxPorts')
      .values(row)
      .onConflict((conflict) =>
        conflict
          .columns(['sandboxId', 'port'])
          .doUpdateSet({ access: row.access, keyId: row.keyId, expiresAt: row.expiresAt }),
      )
      .returningAll()
      .executeTakeFirstOrThrow(),

  list: (sandboxId) =>
    db.selectFrom('sandboxPorts').selectAll().where('sandboxId', '=', sandboxId).orderBy('port').execute(),

  byId: (id) => db.selectFrom('sandboxPorts').selectAll().where('id', '=', id).executeTakeFirst(),

  withdraw: (sandboxId, port) =>
    db
      .deleteFrom('sandboxPorts')
      .where('sandboxId', '=', sandboxId)
      .where('port', '=', port)
      .returningAll()
      .executeTakeFirst(),
})
