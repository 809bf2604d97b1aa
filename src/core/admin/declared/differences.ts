import { isDeepStrictEqual } from 'node:util'
import type { PartCheck } from './org-work.ts'

/** Returns the settings that are not as they are stored. */
export function changedFields<Settings extends object>(wanted: Settings, stored: object): Partial<Settings> {
  const changed = Object.entries(wanted).filter(
    ([name, value]) => !isDeepStrictEqual(value, (stored as Record<string, unknown>)[name]),
  )
  return Object.fromEntries(changed) as Partial<Settings>
}

/** Returns a check of each setting on its own. */
export const checksOf = <Settings extends object>(
  settings: Settings,
  check: (part: Partial<Settings>) => unknown,
): PartCheck[] =>
  Object.entries(settings).map(([field, value]) => ({
    field,
    check: () => check({ [field]: value } as Partial<Settings>),
  }))

/** Reads every row of a table that is read in pages ordered by name. */
export async function everyRow<Row>(
  nameOf: (row: Row) => string,
  read: (afterName: string, limit: number) => Promise<Row[]>,
): Promise<Row[]> {
  const pageSize = 200
  const all: Row[] = []
  for (;;) {
    const rows = await read(all.length === 0 ? '' : nameOf(all.at(-1)!), pageSize)
    all.push(...rows)
    if (rows.length < pageSize) return all
  }
}
