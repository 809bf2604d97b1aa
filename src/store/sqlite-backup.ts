import { readdirSync, renameSync, rmSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { backup, DatabaseSync } from 'node:sqlite'
import { syncDirectory } from '../base/durable-directory.ts'
import { StartRefused } from '../base/errors.ts'

/** Pages that are copied before other work of the process can run. */
const pagesAtOnce = 1_000

/**
 * Copies a database that can be in use, as of one moment: https://www.sqlite.org/backup.html
 * @param from path of the database.
 * @param to path of a file that does not exist.
 */
export async function backUpDatabase(from: string, to: string): Promise<void> {
  const database = new DatabaseSync(from, { readOnly: true, timeout: 10_000 })
  try {
    await backup(database, to, { rate: pagesAtOnce })
  } finally {
    database.close()
  }
}

/** Returns where an upgrade keeps a copy of the database with an older schema. */
export const keptPath = (path: string, version: number): string => `${path}.schema-${version}`

/**
 * Copies the database before it is migrated, and removes the copies of earlier upgrades.
 * @param version of its schema.
 * @throws StartRefused if the copy cannot be written: nothing was changed.
 */
export async function keepBefore(path: string, version: number): Promise<void> {
  const kept = keptPath(path, version)
  const unfinished = `${kept}.unfinished`
  try {
    rmSync(unfinished, { force: true })
    await backUpDatabase(path, unfinished)
    // Another process can have upgraded it meanwhile, and has then kept its own copy.
    if (schemaOf(unfinished) !== version) return rmSync(unfinished)
    renameSync(unfinished, kept)
    for (const older of keptOf(path)) if (older !== kept) rmSync(older)
    syncDirectory(dirname(path))
  } catch (error) {
    rmSync(unfinished, { force: true })
    throw new StartRefused(
      `The database cannot be copied before it is upgraded: ${(error as Error).message}.`,
      `Make room for a copy of it in ${dirname(path)}.`,
    )
  }
}

function schemaOf(path: string): unknown {
  const database = new DatabaseSync(path, { readOnly: true })
  try {
    return database.prepare('select version from schema_version').get()?.version
  } finally {
    database.close()
  }
}

const keptOf = (path: string): string[] =>
  readdirSync(dirname(path))
    .filter((name) => name.startsWith(`${basename(path)}.schema-`))
    .map((name) => join(dirname(path), name))

/** Returns what is wrong with a database; `undefined` if it is whole: https://www.sqlite.org/pragma.html#pragma_integrity_check */
export function problemOfDatabase(path: string): string | undefined {
  let database: DatabaseSync | undefined
  try {
    database = new DatabaseSync(path, { readOnly: true })
    const rows = database.prepare('pragma integrity_check(10)').all()
    const problems = rows.map((row) => String(Object.values(row)[0]))
    return problems.length === 1 && problems[0] === 'ok' ? undefined : problems.join('; ')
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  } finally {
    database?.close()
  }
}
