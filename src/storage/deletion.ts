import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { codeOf, kernel } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'
import { readEntries } from './listing.ts'
import { parsePath } from './paths.ts'
import { openDirectory, refusing, splitPath, toRefusal, toStatus } from './walk.ts'

export interface Deleted {
  /** Entries removed by this call. */
  entries: number
  /** `false` if the budget was used up or code in the sandbox kept adding entries; then call again. */
  complete: boolean
}

const entriesMax = 100_000

/**
 * Deletes an entry of any kind. Links are not followed.
 * @param recursive whether to delete the content of a directory, at any depth; otherwise it must be empty.
 * @param budget maximum number of entries to delete in this call.
 * @throws Refusal path_not_found, directory_not_empty and others.
 */
export async function deletePath(
  root: number,
  path: string,
  recursive: boolean,
  budget = entriesMax,
): Promise<Deleted> {
  const parsed = parsePath(path)
  const { parent, name } = splitPath(parsed)
  await using directory = await openDirectory(root, parent)
  const { kind } = toStatus(await refusing(parsed, kernel.statName(directory.fd, name)))
  const deletion = new Deletion(budget)
  try {
    if (kind === 'directory' && recursive) await deletion.tree(directory.fd, name)
    else await deletion.entry(directory.fd, name, kind === 'directory')
  } catch (error) {
    if (error !== outOfBudget) throw toRefusal(parsed, error)
    return { entries: deletion.entries, complete: false }
  }
  await kernel.syncDescriptor(directory.fd)
  return { entries: deletion.entries, complete: true }
}

const outOfBudget = new Error('out of budget')

/**
 * Empties a tree of any depth with three open descriptors: the subdirectories of a directory are first moved to the top of
 * the tree. Nothing below the top is then deeper than two levels, and no step moves upwards.
 */
class Deletion {
  entries = 0
  readonly #entriesMax: number
  /** Counts every attempt, including those for missing entries, so that code in the sandbox cannot prolong the deletion. */
  #stepsLeft: number

  constructor(budget: number) {
    this.#entriesMax = budget
    this.#stepsLeft = budget * stepsPerEntry + stepsPerEntry
  }

  async entry(directory: number, name: Buffer, isDirectory: boolean): Promise<void> {
    this.#stepsLeft -= 1
    if (this.entries >= this.#entriesMax || this.#stepsLeft < 0) throw outOfBudget
    await kernel.removeName(directory, name, isDirectory ? 1 : 0)
    this.entries += 1
  }

  async tree(directory: number, name: Buffer): Promise<void> {
    {
      await using top = await openChild(directory, name)
      await eachEntry(top, (entry) => this.#clear(top.fd, entry))
    }
    await this.entry(directory, name, true).catch((error) => {
      throw codeOf(error) === 'ENOTEMPTY' ? outOfBudget : error // An entry was added meanwhile.
    })
  }

  /** Removes one entry of the top with its content. Its subdirectories are moved to the top. */
  async #clear(top: number, name: Buffer): Promise<void> {
    if (await this.#removed(top, name)) return
    await using child = await openChild(top, name).catch(goneIsFine)
    if (!child) return
    await eachEntry(child, async (entry) => {
      if (await this.#removed(child.fd, entry)) return
      await kernel.renameName(child.fd, entry, top, ownName(), 0).catch(goneIsFine)
    })
    await this.#removed(top, name)
  }

  /** @returns `false` for a directory that is not empty. */
  async #removed(directory: number, name: Buffer): Promise<boolean> {
    for (const isDirectory of [false, true]) {
      try {
        await this.entry(directory, name, isDirectory)
        return true
      } catch (error) {
        const code = codeOf(error)
        if (code === 'ENOENT') return true
        if (code === 'ENOTEMPTY' || code === 'EEXIST') return false
        // unlinkat(2): EISDIR for a directory, ENOTDIR if it was replaced meanwhile. The next pass handles both.
        if (code !== 'EISDIR' && code !== 'ENOTDIR') throw error
      }
    }
    return false
  }
}

/** Returns a name for an entry that is moved to the top, unlikely to collide with names in the sandbox. */
const ownName = (): Buffer => Buffer.from(randomBytes(12).toString('hex'))

/** Maximum number of attempts for one entry: as a file, as a directory, to open it, and a retry. */
const stepsPerEntry = 4

/** Repeats passes over a directory until it is empty. */
async function eachEntry(directory: Descriptor, act: (name: Buffer) => Promise<void>): Promise<void> {
  for (let seen = true; seen; ) {
    seen = false
    let cookie = '0'
    for (
      let part = await readEntries(directory.fd, cookie);
      part.length > 0;
      part = await readEntries(directory.fd, cookie)
    ) {
      for (const { name } of part) await act(name)
      cookie = part.at(-1)?.cookie ?? cookie
      seen = true
    }
  }
}

async function openChild(directory: number, name: Buffer): Promise<Descriptor> {
  return new Descriptor(await kernel.openBeneath(directory, name, constants.O_RDONLY | constants.O_DIRECTORY, 0))
}

/** Ignores entries that code in the sandbox removed or replaced meanwhile; the next pass handles them. */
function goneIsFine(error: unknown): undefined {
  const code = codeOf(error)
  if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP') return undefined
  throw error
}
