import { statSync } from 'node:fs'
import { type Kysely, sql } from 'kysely'
import type { DatabaseSize } from './admin-rows.ts'
import type { Tables } from './tables.ts'

/** https://www.sqlite.org/pragma.html#pragma_page_size */
const pageBytes = 4096

/** Returns the sizes of the database at a path; https://www.sqlite.org/pragma.html#pragma_freelist_count */
export async function sizeOf(db: Kysely<Tables>, path: string): Promise<DatabaseSize> {
  const { rows } = await sql<{ freelistCount: number }>`pragma freelist_count`.execute(db)
  const bytesOf = (file: string) => statSync(file, { throwIfNoEntry: false })?.size ?? 0
  const freeBytes = (rows[0]?.freelistCount ?? 0) * pageBytes
  return { databaseBytes: bytesOf(path), walBytes: bytesOf(`${path}-wal`), freeBytes }
}
