import { accessSync, closeSync, constants, openSync, statfsSync } from 'node:fs'
import { dirname } from 'node:path'
import { diskProblemOf, diskProblems, diskRefusal } from '../base/disk-errors.ts'
import { Refusal } from '../base/errors.ts'

/** Primary result codes: https://www.sqlite.org/rescode.html */
const resultCodes = { busy: 5, readOnly: 8, ioError: 10, corrupt: 11, full: 13, cannotOpen: 14 } as const

/** Free space below which a database is considered unwritable. */
const leastFreeBytes = 1024 * 1024

/**
 * Returns the refusal for a statement that failed because of the disk, or because of another process; `undefined` for any
 * other error. SQLite does not report the system error, so the function inspects the disk.
 * @param path of the database.
 */
export function refusalOfDatabase(error: unknown, path: string): Refusal | undefined {
  const problem = diskProblemOf(error)
  if (problem !== undefined) return diskRefusal(problem, error)
  switch (primaryCodeOf(error)) {
    case resultCodes.busy: {
      const refusal = new Refusal('unavailable', { reason: 'another process keeps the database locked' })
      refusal.cause = error
      return refusal
    }
    case resultCodes.full:
      return diskRefusal(diskProblems.ENOSPC, error)
    case resultCodes.ioError:
      return diskRefusal(problemAt(path) ?? diskProblems.EIO, error)
    // SQLite also reports pages as damaged that the disk could not read.
    case resultCodes.corrupt:
    case resultCodes.readOnly:
    case resultCodes.cannotOpen: {
      const found = problemAt(path)
      return found === undefined ? undefined : diskRefusal(found, error)
    }
    default:
      return undefined
  }
}

/** Describes what prevents writes to a database, without writing; `undefined` if no problem is visible. */
export function visibleProblemAt(path: string): string | undefined {
  try {
    accessSync(path, constants.W_OK)
    const { bavail, bsize, files, ffree } = statfsSync(dirname(path))
    return bavail * bsize < leastFreeBytes || (files > 0 && ffree === 0) ? diskProblems.ENOSPC : undefined
  } catch (error) {
    return diskProblemOf(error)
  }
}

/** O_TMPFILE of Linux, which Node does not name: https://man7.org/linux/man-pages/man2/open.2.html */
const unnamedFile = 0o20_000_000 | constants.O_DIRECTORY | constants.O_WRONLY

/** Like `visibleProblemAt`, but also creates a file without a name, since a failed filesystem is not visible otherwise. */
function problemAt(path: string): string | undefined {
  try {
    closeSync(openSync(dirname(path), unnamedFile, 0o600))
  } catch (error) {
    const problem = diskProblemOf(error)
    if (problem !== undefined) return problem
  }
  return visibleProblemAt(path)
}

/** Returns the primary result code: the lowest byte of an extended result code of SQLite. */
function primaryCodeOf(error: unknown): number | undefined {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'errcode') : undefined
  return typeof code === 'number' ? code & 0xff : undefined
}
