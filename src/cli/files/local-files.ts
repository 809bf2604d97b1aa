/** Local files to upload: single files, directories with what is in them, and glob patterns. */
import { randomBytes } from 'node:crypto'
import type { Stats } from 'node:fs'
import { type FileHandle, glob, lstat, open, readdir, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join, posix } from 'node:path'
import { addAbortSignal, Readable } from 'node:stream'
import { reasonOf } from '../api-client.ts'
import { ClientError } from '../client-error.ts'
import { exitCodes } from '../process-io.ts'
import { isGlob, targetOf } from './globs.ts'

export interface LocalFile {
  /** On this machine. */
  path: string
  /** Relative to the target directory. */
  target: string
  size: number
}

/** Files to upload, and what was left out because it is neither a file nor a directory. */
export interface LocalFiles {
  files: LocalFile[]
  skipped: string[]
}

/**
 * Finds the files that arguments name. A link is followed if it is an argument itself; inside a directory it could lead
 * anywhere, and is left out.
 * @throws ClientError when an argument names nothing.
 */
export async function findLocalFiles(args: readonly string[]): Promise<LocalFiles> {
  const found: LocalFiles = { files: [], skipped: [] }
  for (const arg of args) {
    for (const { path, target } of await expand(arg)) await add(found, path, target, await statOf(path))
  }
  return found
}

/** A pattern that the shell did not expand, because it was quoted or this is no shell. */
async function expand(arg: string): Promise<{ path: string; target: string }[]> {
  const exists = await lstat(arg).then(
    () => true,
    () => false,
  )
  // `.` and `..` stand for what is in the directory.
  if (exists || !isGlob(arg)) return [{ path: arg, target: /^\.{0,2}$/.test(basename(arg)) ? '' : basename(arg) }]
  const paths: string[] = []
  for await (const path of glob(arg)) paths.push(path)
  if (paths.length === 0) throw new ClientError(`nothing matches ${arg}`, exitCodes.noInput)
  const matches = paths.sort().map((path) => ({ path, target: targetOf(path, posix.normalize(arg)) }))
  // What is in a matching directory is uploaded with it, and must not be uploaded again for matching itself.
  return matches.filter(({ path }) => !paths.some((other) => path.startsWith(`${other}/`)))
}

async function statOf(path: string): Promise<Stats> {
  try {
    return await stat(path)
  } catch (error) {
    throw new ClientError(`cannot read ${path}: ${reasonOf(error)}`, exitCodes.noInput)
  }
}

async function add(found: LocalFiles, path: string, target: string, status: Stats): Promise<void> {
  if (status.isFile()) {
    found.files.push({ path, target, size: status.size })
    return
  }
  if (!status.isDirectory()) throw new ClientError(`${path} is not a regular file`, exitCodes.usage)
  const entries = await readdir(path, { withFileTypes: true })
  for (const { name } of entries.sort((one, other) => (one.name < other.name ? -1 : 1))) {
    const [below, name2] = [join(path, name), posix.join(target, name)]
    const kind = await lstat(below)
    if (kind.isFile() || kind.isDirectory()) await add(found, below, name2, kind)
    else found.skipped.push(below)
  }
}

/** Standard input in a file without a name: an upload must know its size. */
export interface SpooledInput {
  size: number
  bytes(): Readable
  close(): Promise<void>
}

export async function spool(input: Readable, stop: AbortSignal): Promise<SpooledInput> {
  const path = join(tmpdir(), `glovebox-${randomBytes(8).toString('hex')}`)
  const file: FileHandle = await open(path, 'wx+', 0o600)
  await rm(path)
  try {
    await file.writeFile(addAbortSignal(stop, input))
    const { size } = await file.stat()
    return {
      size,
      bytes: () => Readable.from(piecesOf(file)),
      close: () => file.close(),
    }
  } catch (error) {
    await file.close()
    throw error
  }
}

const pieceBytes = 64 * 1024

async function* piecesOf(file: FileHandle): AsyncGenerator<Uint8Array, void, undefined> {
  for (let position = 0; ; ) {
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(pieceBytes), 0, pieceBytes, position)
    if (bytesRead === 0) return
    position += bytesRead
    yield buffer.subarray(0, bytesRead)
  }
}
