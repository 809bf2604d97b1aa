/** `glovebox ls`, `push` and `pull`: files of a thread or volume of a server, and files of this machine. */
import { createReadStream } from 'node:fs'
import { stat as statLocal } from 'node:fs/promises'
import { basename, dirname, join, posix } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Command } from 'commander'
import { note, reporting, type Server, type ServerOptions, serverOf, withServer } from './api-client.ts'
import { ClientError } from './client-error.ts'
import { type Cli, withExamples } from './command.ts'
import { isGlob, targetOf } from './files/globs.ts'
import { list } from './files/list.ts'
import { findLocalFiles, type LocalFile, spool } from './files/local-files.ts'
import { TransferProgress } from './files/progress.ts'
import { type Download, download, glob, type Place, stat, toRemotePath, upload, walk } from './files/remote-files.ts'
import { TargetDirectory } from './files/target-directory.ts'
import { withJson } from './output.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { RunPrinter } from './run-lines.ts'

export interface PlaceOptions extends ServerOptions {
  thread?: string
  volume?: string
  json?: boolean
}

interface PushOptions extends PlaceOptions {
  /** The target directory, or with standard input the target file; the root by default. */
  path?: string
}

export function register(program: Command, { io, exit }: Cli): void {
  const storage = (command: Command) =>
    withServer(
      withJson(command.option('--thread <id>', 'thread').option('--volume <slug>', 'volume, instead of a thread')),
    )
  withExamples(
    storage(
      program
        .command('ls [path]')
        .description('List files of a thread or volume of a server. The path may be a directory, a file or a glob.')
        .option('-l, --long', 'print size and time of each file')
        .option('-R, --recursive', 'list what is in directories as well'),
    ),
    'glovebox ls --thread analysis',
    "glovebox ls 'out/*.png' --thread analysis -l",
  ).action(async (path: string | undefined, options: PlaceOptions & { long?: boolean; recursive?: boolean }) =>
    exit(await reporting('ls', io, async () => list(await serverOf(options, io), placeOf(options), path, options, io))),
  )
  withExamples(
    storage(
      program
        .command('push <files...>')
        .description('Upload files, directories and globs to a thread or volume of a server. "-" is standard input.'),
    ).option('--path <path>', 'target directory, or for "-" the target file (default: the root)'),
    'glovebox push data.csv model.bin --thread analysis --path inputs',
    'glovebox push src --thread analysis',
    'pg_dump shop | glovebox push - --thread analysis --path shop.sql',
  ).action(async (files: string[], options: PushOptions) => exit(await push(files, options, io)))
  withExamples(
    storage(
      program
        .command('pull <path> [target]')
        .description('Download a file, a directory or a glob from a thread or volume of a server. "-" prints a file.'),
    ),
    'glovebox pull out/figure.png --thread analysis',
    "glovebox pull 'out/**/*.csv' results --thread analysis",
    'glovebox pull model.bin - --thread analysis | sha256sum',
  ).action(async (path: string, target: string | undefined, options: PlaceOptions) =>
    exit(await pull(path, target, options, io)),
  )
}

/** @throws ClientError unless exactly one of thread and volume is given. */
function placeOf({ thread, volume }: PlaceOptions): Place {
  const id = thread ?? volume
  if (id === undefined || (thread !== undefined && volume !== undefined)) {
    throw new ClientError('use either --thread ID or --volume SLUG', exitCodes.usage)
  }
  return { source: thread === undefined ? 'volume' : 'thread', id }
}

/** Uploads files one after the other. @returns the exit code: 64 for wrong arguments, 70 when an upload failed. */
export function push(args: readonly string[], options: PushOptions, io: ProcessIo): Promise<number> {
  return reporting('push', io, async () => {
    const server = await serverOf(options, io)
    const place = placeOf(options)
    if (args.includes('-')) return pushInput(server, place, args, options, io)
    const { files, skipped } = await findLocalFiles(args)
    for (const path of skipped) note('push', `skipped ${path}, which is neither a file nor a directory`, io)
    const progress = new TransferProgress('push', io, files.length, options.json === true)
    for (const file of files) await pushFile(server, place, file, options.path ?? '', progress)
    progress.end()
    return exitCodes.ok
  })
}

async function pushFile(
  server: Server,
  place: Place,
  { path, target, size }: LocalFile,
  directory: string,
  progress: TransferProgress,
): Promise<void> {
  const to = posix.join(toRemotePath(directory), target)
  const step = progress.step(path, size)
  // A file that grows meanwhile is uploaded as it was.
  const source = size === 0 ? Readable.from([]) : createReadStream(path, { end: size - 1 })
  try {
    await Promise.all([upload(server, { ...place, path: to, size }, step), pipeline(source, step)])
  } catch (error) {
    source.destroy()
    throw error instanceof ClientError ? new ClientError(`${path}: ${error.message}`, error.exitCode) : error
  }
  progress.done({ from: path, to, size })
}

async function pushInput(
  server: Server,
  place: Place,
  args: readonly string[],
  { path, json = false }: PushOptions,
  io: ProcessIo,
): Promise<number> {
  if (args.length > 1) throw new ClientError('"-" cannot be combined with other files', exitCodes.usage)
  if (path === undefined) throw new ClientError('"-" requires the target file: --path FILE', exitCodes.usage)
  const to = toRemotePath(path)
  const input = await spool(io.stdin, io.stop)
  try {
    const progress = new TransferProgress('push', io, 1, json)
    await upload(server, { ...place, path: to, size: input.size }, input.bytes())
    progress.done({ from: '-', to, size: input.size })
    progress.end()
    return exitCodes.ok
  } finally {
    await input.close()
  }
}

/**
 * Downloads files. Each is replaced only when its download is complete, and nothing outside of the target changes.
 * @param path a file, a directory or a glob.
 * @param target path on this machine: an existing directory, or the new name; by default the current directory. `-`
 * prints the file.
 */
export function pull(path: string, to: string | undefined, options: PlaceOptions, io: ProcessIo): Promise<number> {
  return reporting('pull', io, async () => {
    const server = await serverOf(options, io)
    const place = placeOf(options)
    const from = toRemotePath(path)
    if (to === '-') return printFile(await download(server, place, from), from, io)
    const progress = new TransferProgress('pull', io, undefined, options.json === true)
    // Without a match, a pattern may be the name of a file: `data[1].csv`.
    const matches = isGlob(from) ? await pullGlob(server, place, from, to ?? '.', progress) : 0
    if (matches === 0) await pullOne(server, place, from, to, progress)
    progress.end()
    return progress.exitCode
  })
}

async function pullOne(
  server: Server,
  place: Place,
  path: string,
  to: string | undefined,
  progress: TransferProgress,
): Promise<void> {
  const isInto = to === undefined || to.endsWith('/') || (await isDirectory(to))
  const file = path === '' ? undefined : await downloadUnlessDirectory(server, place, path)
  if (file === undefined) {
    // As cp does: into an existing directory under its own name, otherwise under the new one.
    const target = isInto ? join(to ?? '.', posix.basename(path)) : to
    await pullDirectory(server, place, path, target, progress)
    return
  }
  const [directory, name] = isInto ? [to ?? '.', posix.basename(path)] : [dirname(to), basename(to)]
  await save(file, path, { target: await TargetDirectory.open(directory), directory, name }, progress)
}

const isDirectory = (path: string): Promise<boolean> =>
  statLocal(path).then(
    (status) => status.isDirectory(),
    () => false,
  )

/** Most paths are files, which this finds with one request. */
async function downloadUnlessDirectory(server: Server, place: Place, path: string): Promise<Download | undefined> {
  try {
    return await download(server, place, path)
  } catch (error) {
    const isRefused = error instanceof ClientError && error.code === 'validation_error'
    if (isRefused && (await stat(server, place, path)).is_directory) return undefined
    throw error
  }
}

async function pullDirectory(
  server: Server,
  place: Place,
  path: string,
  directory: string,
  progress: TransferProgress,
): Promise<void> {
  const target = await TargetDirectory.open(directory)
  for await (const entry of walk(server, place, path)) {
    const name = path === '' ? entry.path : entry.path.slice(path.length + 1)
    if (entry.is_directory) await target.makeDirectory(name)
    else await pullSeveral(server, place, entry.path, { target, directory, name }, progress)
  }
}

/** @returns how many files and directories match. */
async function pullGlob(
  server: Server,
  place: Place,
  pattern: string,
  directory: string,
  progress: TransferProgress,
): Promise<number> {
  let target: TargetDirectory | undefined
  const seen = new Set<string>()
  const pullFile = async (path: string) => {
    if (seen.has(path)) return
    seen.add(path)
    const name = targetOf(path, pattern)
    target ??= await TargetDirectory.open(directory)
    await pullSeveral(server, place, path, { target, directory, name }, progress)
  }
  let matches = 0
  for await (const match of glob(server, place, pattern)) {
    matches++
    if (!match.is_directory) await pullFile(match.path)
    else for await (const entry of walk(server, place, match.path)) if (!entry.is_directory) await pullFile(entry.path)
  }
  return matches
}

interface Destination {
  target: TargetDirectory
  /** The path of the target, as it is printed. */
  directory: string
  name: string
}

/** Downloads one file of several: the others follow even if it fails. */
async function pullSeveral(
  server: Server,
  place: Place,
  path: string,
  destination: Destination,
  progress: TransferProgress,
): Promise<void> {
  try {
    await save(await download(server, place, path), path, destination, progress)
  } catch (error) {
    progress.failed(error)
  }
}

async function save(
  { size, bytes }: Download,
  path: string,
  { target, directory, name }: Destination,
  progress: TransferProgress,
): Promise<void> {
  const step = progress.step(path, size)
  try {
    await Promise.all([pipeline(bytes, step), target.write(name, step, size)])
  } catch (error) {
    bytes.destroy()
    throw error
  }
  progress.done({ from: path, to: join(directory, name), size })
}

/** Prints a file, byte for byte unless standard output is a terminal. */
async function printFile({ size, bytes }: Download, path: string, io: ProcessIo): Promise<number> {
  const printer = new RunPrinter(io)
  let printedBytes = 0
  for await (const piece of bytes as AsyncIterable<Uint8Array>) {
    printedBytes += piece.length
    await printer.print('stdout', Buffer.from(piece))
  }
  await printer.end()
  if (printedBytes !== size) throw new ClientError(`${path} ended after ${printedBytes} of ${size} bytes`)
  return exitCodes.ok
}
