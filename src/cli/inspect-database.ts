import { existsSync, statSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import type { Check } from './inspect.ts'

/** Reading all of a larger database takes longer than the other checks together. */
const wholeMaxBytes = 1024 ** 3

/**
 * Checks whether the database can be read, and whether its pages are consistent. A server can use it at the same time.
 * @param path of the database.
 * @returns no check if there is no database yet.
 */
export function checkDatabase(path: string): Check[] {
  if (!existsSync(path)) return []
  const name = 'database'
  const { size } = statSync(path)
  const remedy = `Put a backup in its place with glovebox restore, or the copy of the last upgrade beside ${path}.`
  try {
    const problem = problemOf(path, size > wholeMaxBytes)
    if (problem === undefined) return [{ name, ok: true, detail: `${Math.ceil(size / 1024 ** 2)} MiB, consistent` }]
    return [{ name, ok: false, detail: `${path} is damaged: ${problem}`, remedy }]
  } catch (error) {
    return [{ name, ok: false, detail: `${path} cannot be read: ${(error as Error).message}`, remedy }]
  }
}

/** https://www.sqlite.org/pragma.html#pragma_quick_check */
function problemOf(path: string, isLarge: boolean): string | undefined {
  const database = new DatabaseSync(path, { readOnly: true, timeout: 10_000 })
  try {
    if (isLarge) {
      database.prepare('select version from schema_version').get()
      return undefined
    }
    const found = Object.values(database.prepare('pragma quick_check(1)').get() ?? {})[0]
    return found === 'ok' ? undefined : String(found)
  } finally {
    database.close()
  }
}
