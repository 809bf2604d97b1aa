/**
 * Accesses files of a mounted thread or volume, relative to the descriptor of its root directory.
 *
 * BOUNDARY: code in a sandbox controls everything below the root and can change it at any time. No function follows a link,
 * leaves the filesystem, waits for a FIFO, a lease or a device, or opens anything except directories and regular files.
 */
import { constants } from 'node:fs'
import { Refusal } from '../base/errors.ts'
import { codeOf, kernel } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'
import { madeDepthMax, type Path, parsePath, textOf } from './paths.ts'
import { refuseTemporaryName, withTemporaryName } from './temporary-names.ts'
import {
  itself,
  type Owner,
  openDirectory,
  openOrMakeDirectory,
  owner,
  refusing,
  type Status,
  splitPath,
  toStatus,
} from './walk.ts'

/** A part of a file: from `offset`, at most `lengthBytes`. */
export interface Range {
  offset: number
  lengthBytes: number
}

export interface OpenFile {
  status: Status
  /** Number of bytes that `bytes` yields, unless the file shrinks meanwhile. */
  lengthBytes: number
  /** Can be read once. The file is closed at its end, or by `close`. */
  bytes: AsyncGenerator<Uint8Array, void, undefined>
  close(): Promise<void>
}

/** Size of a read, in bytes: efficient for the disk, and small enough for many concurrent readers. */
const chunkBytes = 256 * 1024

/** Returns the status of an entry. Links are not followed. @throws Refusal path_not_found and others. */
export async function statPath(root: number, path: string): Promise<Status> {
  const parsed = parsePath(path)
  if (parsed.length === 0) return toStatus(await kernel.statDescriptor(root))
  const { parent, name } = splitPath(parsed)
  await using directory = await openDirectory(root, parent)
  return toStatus(await refusing(parsed, kernel.statName(directory.fd, name)))
}

/**
 * Opens a regular file for reading.
 * @throws Refusal path_not_found, not_a_file, range_invalid, file_busy and others.
 */
export async function readFile(root: number, path: string, range?: Range): Promise<OpenFile> {
  const parsed = parsePath(path)
  const { parent, name } = splitPath(parsed)
  await using directory = await openDirectory(root, parent)
  // The type is checked first, since opening a FIFO or device can have side effects.
  const before = toStatus(await refusing(parsed, kernel.statName(directory.fd, name)))
  requireFile(before, textOf(parsed))
  const file = new Descriptor(await refusing(parsed, kernel.openBeneath(directory.fd, name, constants.O_RDONLY, 0)))
  try {
    const status = toStatus(await kernel.statDescriptor(file.fd))
    requireFile(status, textOf(parsed))
    const { offset, lengthBytes } = within(range, status.sizeBytes)
    return { status, lengthBytes, bytes: chunksOf(file, offset, lengthBytes), close: () => file.close() }
  } catch (error) {
    await file.close()
    throw error
  }
}

function requireFile(status: Status, path: string): void {
  if (status.kind !== 'file') throw new Refusal('not_a_file', { path, kind: status.kind })
}

function within(range: Range | undefined, sizeBytes: number): Range {
  const { offset, lengthBytes } = range ?? { offset: 0, lengthBytes: sizeBytes }
  const isRange = Number.isSafeInteger(offset) && Number.isSafeInteger(lengthBytes) && offset >= 0 && lengthBytes >= 0
  if (!isRange || offset > sizeBytes) throw new Refusal('range_invalid', { offset, sizeBytes })
  return { offset, lengthBytes: Math.min(lengthBytes, sizeBytes - offset) }
}

async function* chunksOf(file: Descriptor, offset: number, lengthBytes: number) {
  try {
    const end = offset + lengthBytes
    for (let at = offset; at < end; ) {
      const chunk = Buffer.allocUnsafeSlow(Math.min(chunkBytes, end - at))
      const got = await file.read(chunk, at)
      if (got === 0) return // The file shrank.
      yield chunk.subarray(0, got)
      at += got
    }
  } finally {
    await file.close()
  }
}

/**
 * Writes a whole file atomically: it appears, or replaces an existing file, after all of it is on the disk. After a crash
 * or a failure of the source, the existing file is unchanged. Of concurrent writes, the last one wins. Creates missing
 * directories. The file belongs to the user of jails, and keeps the permissions of the file that it replaces.
 * @param as whom it and new directories belong to instead, and its permissions.
 * @returns its length in bytes.
 * @throws Refusal storage_full, not_a_file (an entry of another kind has the name), path_too_deep and others; errors of the
 * source.
 */
export async function writeFile(
  root: number,
  path: string,
  source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  as: { owner?: Owner; mode?: number } = {},
): Promise<number> {
  const parsed = parsePath(path, madeDepthMax)
  const { parent, name } = splitPath(parsed)
  refuseTemporaryName(parsed)
  const to = as.owner ?? owner
  await using directory = await openOrMakeDirectory(root, parent, to)
  const replaced = await modeOfReplaced(directory, name, textOf(parsed))
  const mode = as.mode ?? replaced ?? newFileMode
  // The file has no name until it is complete, so it is invisible until then and a crash leaves nothing.
  const unnamed = constants.O_RDWR | O_TMPFILE
  await using file = new Descriptor(
    await refusing(parsed, kernel.openBeneath(directory.fd, itself, unnamed, newFileMode)),
  )
  const bytes = await fill(file, source, parsed)
  await refusing(parsed, giveTo(to, file, mode))
  await refusing(parsed, kernel.syncDescriptor(file.fd))
  await refusing(
    parsed,
    withTemporaryName((unfinished) => kernel.publishFile(file.fd, root, unfinished, directory.fd, name)),
  )
  await refusing(parsed, kernel.syncDescriptor(directory.fd))
  return bytes
}

/** O_TMPFILE of open(2), which is missing in the constants of Node: __O_TMPFILE | O_DIRECTORY. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY

const newFileMode = 0o644

/** Returns the permissions of the existing file, if any, without set-user-ID bits. @throws Refusal not_a_file. */
async function modeOfReplaced(directory: Descriptor, name: Buffer, path: string): Promise<number | undefined> {
  try {
    const numbers = await kernel.statName(directory.fd, name)
    requireFile(toStatus(numbers), path)
    return (numbers[0] ?? newFileMode) & 0o777
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error
    return undefined
  }
}

async function fill(
  file: Descriptor,
  source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  path: Path,
): Promise<number> {
  let at = 0
  for await (const chunk of source) {
    await refusing(path, file.write(chunk, at))
    at += chunk.byteLength
  }
  return at
}

async function giveTo({ uid, gid }: Owner, file: Descriptor, mode: number): Promise<void> {
  await file.chown(uid, gid)
  await file.chmod(mode) // The umask of this process can clear bits.
}

/** Creates a directory and its missing parents. Does nothing if it exists. @throws Refusal path_too_deep and others. */
export async function makeDirectory(root: number, path: string, to = owner): Promise<void> {
  const parsed = parsePath(path, madeDepthMax)
  await using directory = await openOrMakeDirectory(root, parsed, to)
  await refusing(parsed, kernel.syncDescriptor(directory.fd))
}

/**
 * Moves an entry of any kind. Creates missing parents of the target.
 * @param mayReplace whether to replace a file, or an empty directory by a directory.
 * @throws Refusal path_not_found, path_exists, path_invalid (into itself) and others.
 */
export async function movePath(root: number, from: string, to: string, mayReplace: boolean): Promise<void> {
  const source = parsePath(from)
  const target = parsePath(to, madeDepthMax)
  const { parent: sourceParent, name: sourceName } = splitPath(source)
  const { parent: targetParent, name: targetName } = splitPath(target)
  refuseTemporaryName(target)
  await using fromDirectory = await openDirectory(root, sourceParent)
  await refusing(source, kernel.statName(fromDirectory.fd, sourceName))
  await using toDirectory = await openOrMakeDirectory(root, targetParent)
  await refusing(
    target,
    kernel.renameName(fromDirectory.fd, sourceName, toDirectory.fd, targetName, mayReplace ? 1 : 0),
  )
  await kernel.syncDescriptor(toDirectory.fd)
  await kernel.syncDescriptor(fromDirectory.fd)
}
