import type { Server } from '../api-client.ts'
import { type Columns, printItems } from '../output.ts'
import { exitCodes, type ProcessIo } from '../process-io.ts'
import { printable, styled } from '../terminal.ts'
import { isGlob } from './globs.ts'
import { glob, listDirectory, type Place, type RemoteEntry, stat, toRemotePath, walk } from './remote-files.ts'

interface ListOptions {
  long?: boolean
  recursive?: boolean
  json?: boolean
}

/**
 * Prints the entries of a directory, or those that match: one path on each line, those of directories with a slash.
 * @throws ClientError when nothing has the path or matches.
 */
export async function list(
  server: Server,
  place: Place,
  path = '',
  options: ListOptions,
  io: ProcessIo,
): Promise<number> {
  const entries: RemoteEntry[] = []
  for await (const entry of find(server, place, toRemotePath(path), options)) entries.push(entry)
  entries.sort((one, other) => (one.path < other.path ? -1 : 1))
  if (options.long || options.json) printItems(entries, columns, options, io)
  else for (const entry of entries) io.stdout.write(`${nameOf(entry, io)}\n`)
  return exitCodes.ok
}

async function* find(
  server: Server,
  place: Place,
  path: string,
  { recursive = false }: ListOptions,
): AsyncGenerator<RemoteEntry> {
  const read = recursive ? walk : listDirectory
  let matches = 0
  if (isGlob(path)) {
    for await (const match of glob(server, place, path)) {
      matches++
      yield match
      if (recursive && match.is_directory) yield* walk(server, place, match.path)
    }
  }
  // Without a match, a pattern may be the name of a file: `data[1].csv`.
  if (matches > 0) return
  const entry = await stat(server, place, path)
  if (entry.is_directory) yield* read(server, place, path)
  else yield entry
}

const columns: Columns<RemoteEntry> = {
  SIZE: ({ size, is_directory }) => (is_directory ? '-' : `${size}`),
  MODIFIED: ({ modified }) => modified,
  PATH: ({ path, is_directory }) => (is_directory ? `${path}/` : path),
}

function nameOf({ path, is_directory }: RemoteEntry, { stdout, env }: ProcessIo): string {
  const name = printable(path, stdout)
  return is_directory ? styled(`${name}/`, 'blue', stdout, env) : name
}
