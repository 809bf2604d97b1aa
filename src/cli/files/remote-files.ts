/** The files of a thread or volume of a server. */
import { posix } from 'node:path'
import { Readable } from 'node:stream'
import { requestJson, type Server, toClientError } from '../api-client.ts'
import { ClientError } from '../client-error.ts'
import { exitCodes } from '../process-io.ts'
import { isGlob, literalPrefix } from './globs.ts'

/** A thread or volume. */
export interface Place {
  source: 'thread' | 'volume'
  id: string
}

export interface RemoteEntry {
  /** Relative to the root, without a leading slash. */
  path: string
  /** In bytes; 0 for a directory. */
  size: number
  modified: string
  is_directory: boolean
}

/** @throws ClientError when it leaves the thread or volume. */
export function toRemotePath(path: string): string {
  const segments = path.split('/').filter((segment) => segment !== '' && segment !== '.')
  if (segments.includes('..')) throw new ClientError(`${path} contains ..`, exitCodes.usage)
  return segments.join('/')
}

/** Yields the entries of a directory. @throws ClientError, with the code of the server. */
export async function* listDirectory(server: Server, place: Place, path: string): AsyncGenerator<RemoteEntry> {
  for (let cursor: string | null = null; ; ) {
    const body = { ...place, path, ...(cursor !== null && { cursor }) }
    const page: { files: (RemoteEntry & { name: string })[]; next_cursor: string | null } = await requestJson(
      server,
      '/v1/files/list',
      { body },
    )
    for (const { name, size, modified, is_directory } of page.files) {
      yield { path: posix.join(path, requireName(name)), size, modified, is_directory }
    }
    if (page.next_cursor === null) return
    cursor = page.next_cursor
  }
}

/**
 * BOUNDARY: names come from a sandbox, through a server that may not check them. A name that is no single component
 * could leave the target directory.
 */
function requireName(name: string): string {
  if (name !== '' && name !== '.' && name !== '..' && !/[/\0]/.test(name)) return name
  throw new ClientError(`the server sent ${JSON.stringify(name)} as the name of a file`)
}

/** Yields every entry below a directory, parents first. */
export async function* walk(server: Server, place: Place, path: string): AsyncGenerator<RemoteEntry> {
  const pending = [path]
  for (let directory = pending.pop(); directory !== undefined; directory = pending.pop()) {
    for await (const entry of listDirectory(server, place, directory)) {
      yield entry
      if (entry.is_directory) pending.push(entry.path)
    }
  }
}

/** Yields the entries that match a glob pattern. A directory that cannot contain a match is not listed. */
export async function* glob(server: Server, place: Place, pattern: string): AsyncGenerator<RemoteEntry> {
  const isDeep = pattern.includes('**')
  const depth = pattern.split('/').length
  const pending = [literalPrefix(pattern)]
  for (let directory = pending.pop(); directory !== undefined; directory = pending.pop()) {
    for await (const entry of listDirectory(server, place, directory)) {
      if (posix.matchesGlob(entry.path, pattern)) yield entry
      if (entry.is_directory && (isDeep || entry.path.split('/').length < depth)) pending.push(entry.path)
    }
  }
}

/** @throws ClientError when there is no file or directory with this path. */
export async function stat(server: Server, place: Place, path: string): Promise<RemoteEntry> {
  if (path === '') return { path, size: 0, modified: '', is_directory: true }
  const parent = posix.dirname(path)
  for await (const entry of listDirectory(server, place, parent === '.' ? '' : parent)) {
    if (entry.path === path) return entry
  }
  const problem = isGlob(path) ? `nothing matches ${path}` : `${path} does not exist`
  throw new ClientError(`${problem} in the ${place.source} ${place.id}`)
}

/** Creates a signed link, through which the bytes are then sent. */
const linkTo = (server: Server, direction: 'upload' | 'download', body: object): Promise<{ url: string }> =>
  requestJson(server, `/v1/files/${direction}`, { body })

/** A file that is being downloaded. */
export interface Download {
  /** In bytes. */
  size: number
  bytes: Readable
}

export async function download(server: Server, place: Place, path: string): Promise<Download> {
  const { url } = await linkTo(server, 'download', { ...place, path })
  const response = await fetch(url, { headers: { 'accept-encoding': 'identity' }, signal: server.stop })
  if (!response.ok || response.body === null) throw await toClientError(response)
  return { size: Number(response.headers.get('content-length')), bytes: Readable.from(response.body) }
}

/** Uploads a file. @param bytes exactly `size` of them. */
export async function upload(server: Server, file: Place & { path: string; size: number }, bytes: Readable) {
  const { url } = await linkTo(server, 'upload', file)
  const response = await fetch(url, {
    method: 'PUT',
    headers: { 'content-length': String(file.size) },
    body: file.size === 0 ? new Uint8Array(0) : Readable.toWeb(bytes),
    duplex: 'half',
    signal: server.stop,
  } as RequestInit)
  if (!response.ok) throw await toClientError(response)
  await response.arrayBuffer()
}
