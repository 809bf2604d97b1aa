import { type RawBuilder, type SqlBool, sql } from 'kysely'
import type { AfterRow } from './admin-rows.ts'

/** Selects the rows that follow one in the order by age and then by id. */
export const comesAfter = ({ createdAt, id }: AfterRow): RawBuilder<SqlBool> =>
  sql<SqlBool>`(${sql.ref('createdAt')}, ${sql.ref('id')}) > (${createdAt}, ${id})`
