import { type Kysely, sql, type Transaction } from 'kysely'
import type { Tables } from './tables.ts'

/**
 * Runs one transaction that survives a power cut once this resolves: the log is synced to the disk at its commit.
 * Nobody else writes in between, since the connection is held. https://www.sqlite.org/pragma.html#pragma_synchronous
 */
export function durably<Result>(
  db: Kysely<Tables>,
  work: (transaction: Transaction<Tables>) => Promise<Result>,
): Promise<Result> {
  return db.connection().execute(async (connection) => {
    await sql`pragma synchronous = full`.execute(connection)
    try {
      return await connection.transaction().execute(work)
    } finally {
      await sql`pragma synchronous = normal`.execute(connection)
    }
  })
}
