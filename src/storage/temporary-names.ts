/**
 * Temporary names for a file that replaces another one, and for a directory whose owner is not set yet. They exist for
 * microseconds, in the root directory of the filesystem, so that the next mount finds what a crash left without a search.
 *
 * BOUNDARY: code in a sandbox can use these names. A write then uses the next name, and never touches existing entries.
 */
import { Refusal } from '../base/errors.ts'
import { programCopies } from '../base/program-copy.ts'
import { codeOf, kernel } from '../kernel/kernel.ts'
import type { Path } from './paths.ts'

/** Twice the number of libuv threads (src/cli/child.ts), each of which can use one name at a time. */
const names: readonly Buffer[] = Array.from({ length: 32 }, (_, n) => Buffer.from(`.glovebox-${n}`))

const copies: readonly Buffer[] = Object.values(programCopies).map((name) => Buffer.from(name))

let next = 0

/**
 * Calls an operation with each name until one is unused.
 * @throws Refusal reserved_names_taken if all are used; errors of the operation.
 */
export async function withTemporaryName(verb: (name: Buffer) => Promise<void>): Promise<void> {
  next = (next + 1) % names.length
  for (const name of [...names.slice(next), ...names.slice(0, next)]) {
    try {
      await verb(name)
      return
    } catch (error) {
      if (!isTaken(error)) throw error
    }
  }
  throw new Refusal('reserved_names_taken')
}

const isTaken = (error: unknown): boolean =>
  codeOf(error) === 'EEXIST' && Reflect.get(error as object, 'syscall') === 'unfinished'

/** Rejects paths with one of these names, which the next mount deletes. @throws Refusal path_invalid. */
export function refuseTemporaryName(path: Path): void {
  const [first] = path
  if (first && [...names, ...copies].some((name) => name.equals(first)))
    throw new Refusal('path_invalid', {
      problem: 'begins with a name that is reserved for unfinished writes and copies of programs',
    })
}

/**
 * Removes files, links and empty directories with these names from the root, which a crash can leave.
 * @throws Error of the system call if an entry cannot be removed.
 */
export const removeTemporaryNames = (root: number): Promise<void> =>
  kernel.removeLeftovers(root, Buffer.from([...names, ...copies].map(String).join('/')))

/** Removes the copy of a program from the home in which it ran. @throws Error as `removeTemporaryNames` does. */
export const removeProgramCopies = (root: number): Promise<void> =>
  kernel.removeLeftovers(root, Buffer.from(copies.map(String).join('/')))
