/** From a root descriptor to directories and entries, each step by descriptor. */
import { constants } from 'node:fs'
import { diskRefusalOf } from '../base/disk-errors.ts'
import { Refusal } from '../base/errors.ts'
import { codeOf, kernel, type StatNumbers } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'
import { type Path, piecesOf, textOf } from './paths.ts'
import { refuseTemporaryName, withTemporaryName } from './temporary-names.ts'

/** The one user of jails, as it is on the disk; mounts translate it. */
export const owner: Owner = { uid: 1000, gid: 1000 }

export interface Owner {
  readonly uid: number
  readonly gid: number
}

export type Kind = 'file' | 'directory' | 'link' | 'fifo' | 'socket' | 'device'

export interface Status {
  kind: Kind
  /** Of a file: its length, holes included. */
  sizeBytes: number
  modifiedMs: number
  /** Room that it takes. */
  allocatedBytes: number
}

const kinds: Readonly<Record<number, Kind>> = {
  [constants.S_IFREG]: 'file',
  [constants.S_IFDIR]: 'directory',
  [constants.S_IFLNK]: 'link',
  [constants.S_IFIFO]: 'fifo',
  [constants.S_IFSOCK]: 'socket',
}

export function toStatus([mode = 0, size = 0, modifiedMs = 0, , , , , , blocks = 0]: StatNumbers): Status {
  const kind = kinds[mode & constants.S_IFMT] ?? 'device'
  return { kind, sizeBytes: kind === 'file' ? size : 0, modifiedMs, allocatedBytes: blocks * 512 }
}

/** ".": a directory, named from itself. */
export const itself = Buffer.of(0x2e)

const directoryFlags = constants.O_RDONLY | constants.O_DIRECTORY

/** Opens the directory at a path; the root again for the empty one. @throws Refusal. */
export async function openDirectory(root: number, path: Path): Promise<Descriptor> {
  let at = new Descriptor(await refusing(path, kernel.openBeneath(root, itself, directoryFlags, 0)))
  for (const piece of piecesOf(path)) {
    try {
      const next = new Descriptor(await refusing(path, kernel.openBeneath(at.fd, piece, directoryFlags, 0)))
      await at.close()
      at = next
    } catch (error) {
      await at.close()
      throw error
    }
  }
  return at
}

/** The parts of the path of an entry, which has a name. @throws Refusal path_invalid for the root. */
export function splitPath(path: Path): { parent: Path; name: Buffer } {
  const name = path.at(-1)
  if (!name) throw new Refusal('path_invalid', { problem: 'names the home directory itself' })
  return { parent: path.slice(0, -1), name }
}

/**
 * As `openDirectory`, making what is missing, also while others do the same. What was made is on the disk with the next
 * sync of anything in this filesystem: ext4 has one journal. @param to whom new directories belong.
 */
export async function openOrMakeDirectory(root: number, path: Path, to = owner): Promise<Descriptor> {
  try {
    return await openDirectory(root, path)
  } catch (error) {
    if (!(error instanceof Refusal && error.code === 'path_not_found')) throw error
  }
  refuseTemporaryName(path)
  let at = await openDirectory(root, [])
  for (const name of path) {
    try {
      const next = await stepInto(root, at, name, path, to)
      await at.close()
      at = next
    } catch (error) {
      await at.close()
      throw error
    }
  }
  return at
}

/** A directory may be removed by code in the sandbox between being made and being opened; not for ever. */
const makeAttempts = 8

async function stepInto(root: number, at: Descriptor, name: Buffer, path: Path, to: Owner): Promise<Descriptor> {
  for (let attempt = 1; ; attempt++) {
    try {
      return new Descriptor(await kernel.openBeneath(at.fd, name, directoryFlags, 0))
    } catch (error) {
      if (codeOf(error) !== 'ENOENT' || attempt === makeAttempts) throw toRefusal(path, error)
    }
    try {
      await withTemporaryName((unfinished) =>
        kernel.makeDirectory(root, unfinished, at.fd, name, 0o755, to.uid, to.gid),
      )
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw toRefusal(path, error)
    }
  }
}

/** Awaits a verb; its errors that are the caller's to act on become refusals. */
export async function refusing<T>(path: Path, work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    throw toRefusal(path, error)
  }
}

/** @returns the refusal for the caller; the error itself if it is a fault. */
export function toRefusal(path: Path, error: unknown): unknown {
  const text = textOf(path)
  switch (codeOf(error)) {
    case 'ENOENT':
      return new Refusal('path_not_found', { path: text })
    case 'ENOTDIR':
      return new Refusal('not_a_directory', { path: text })
    case 'ELOOP':
    case 'EXDEV':
      return new Refusal('path_invalid', { problem: 'goes through a link' })
    case 'EISDIR':
      return new Refusal('not_a_file', { path: text, kind: 'directory' })
    case 'ENXIO': // A socket, or a FIFO without a reader.
    case 'EACCES': // A device, on a mount that opens none.
    case 'ENODEV':
      return new Refusal('not_a_file', { path: text, kind: 'special file' })
    case 'EEXIST':
      return new Refusal('path_exists', { path: text })
    case 'ENOTEMPTY':
      return new Refusal('directory_not_empty', { path: text })
    case 'EINVAL': // renameat2(2): a directory into itself.
      return new Refusal('path_invalid', { problem: 'leads into itself' })
    case 'ENAMETOOLONG':
      return new Refusal('path_invalid', { problem: 'is too long' })
    case 'EAGAIN': // A lease (fcntl(2)), or endless renames of what is above it.
    case 'ETXTBSY':
    case 'EBUSY':
      return new Refusal('file_busy', { path: text })
    case 'ENOSPC':
    case 'EDQUOT':
    case 'EMLINK':
    case 'EFBIG':
      return new Refusal('storage_full')
    default:
      return diskRefusalOf(error) ?? error
  }
}
