/**
 * A file that takes the place of another, and a directory of which the owner is not set yet, have a name for the
 * microseconds before they get theirs. It is one of a few in the root directory of the filesystem, so that what a crash
 * leaves there is found at the next mount without looking anywhere else.
 *
 * BOUNDARY: code in a sandbox can take these names. A write then uses the next one and touches nothing that is there.
 */
import { Refusal } from '../base/errors.ts'
import { codeOf, kernel } from '../kernel/kernel.ts'
import type { Path } from './paths.ts'

/** Twice as many as threads of libuv that could each hold one (src/cli/child.ts), so that writers find one at once. */
const names: readonly Buffer[] = Array.from({ length: 32 }, (_, n) => Buffer.from(`.glovebox-${n}`))

let next = 0

/**
 * Calls a verb of the kernel with one name after the other, until one is free.
 * @throws Refusal reserved_names_taken when none is; what the verb throws.
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

/** What would have one of these names would be gone with the next mount. @throws Refusal path_invalid. */
export function refuseTemporaryName(path: Path): void {
  const [first] = path
  if (first && names.some((name) => name.equals(first)))
    throw new Refusal('path_invalid', { problem: 'begins with a name that is reserved for unfinished writes' })
}

/**
 * Removes what a crash left under these names: files, links and empty directories, in the root alone.
 * @throws Error when the filesystem does not let it.
 */
export const removeTemporaryNames = (root: number): Promise<void> =>
  kernel.removeLeftovers(root, Buffer.from(names.map(String).join('/')))
