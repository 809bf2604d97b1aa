import { type RawBuilder, type SqlBool, sql } from 'kysely'
import type { AfterRow } from './admin-rows.ts'

/** Matches the rows after a given one, ordered by age and then by ID. */
export const comesAfter = ({ createdAt, id }: AfterRow): RawBuilder<SqlBool> =>
  sql<SqlBool>`(${sql.ref('createdAt')}, ${sql.ref('id')}) > (${createdAt}, ${id})`
