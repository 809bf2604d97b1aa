/** `glovebox sandbox cp` and `ls NAME:PATH`: files of a sandbox, running or stopped, and files of this machine. */
import { createReadStream } from 'node:fs'
import { stat as statLocal } from 'node:fs/promises'
import { basename, dirname, join, posix } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { everyListed, note, reporting, requestJson, type Server, send, serverOf, toClientError } from '../api-client.ts'
import { ClientError } from '../client-error.ts'
import { findLocalFiles, type LocalFile } from '../files/local-files.ts'
import { TransferProgress } from '../files/progress.ts'
import { TargetDirectory } from '../files/target-directory.ts'
import { type Columns, printItems } from '../output.ts'
import { exitCodes, type OutputStream, type ProcessIo } from '../process-io.ts'
import { RunPrinter } from '../run-lines.ts'
import { printable } from '../terminal.ts'
import type { SandboxOptions } from './paths.ts'

export interface FileOptions extends SandboxOptions {
  user?: string
  long?: boolean
}

/** A path in a sandbox. */
interface SandboxPlace {
  sandbox: string
  path: string
}

/** A file of a sandbox, as the server describes it. */
interface RemoteFile {
  name: string
  kind: 'file' | 'directory' | 'link' | 'fifo' | 'socket' | 'device'
  size_bytes: number
  mode: string
  uid: number
  gid: number
  modified_at: string
  target?: string
}

/** Returns the place that `NAME:PATH` names; `undefined` for a path of this machine, such as `./a:b`. */
export function placeOf(text: string): SandboxPlace | undefined {
  const [, sandbox = '', path = ''] = /^([A-Za-z0-9][A-Za-z0-9_-]*):(.*)$/s.exec(text) ?? []
  return sandbox === '' ? undefined : { sandbox, path: path === '' ? '.' : path }
}

/** The files of sandboxes of a server, with the options of a command. */
class RemoteFiles {
  readonly server: Server
  readonly #options: FileOptions

  constructor(server: Server, options: FileOptions) {
    this.server = server
    this.#options = options
  }

  stat(place: SandboxPlace): Promise<RemoteFile> {
    return requestJson(this.server, this.#pathOf(place, '/stat'))
  }

  /** Returns the file with this path; `undefined` if it does not exist. */
  async find(place: SandboxPlace): Promise<RemoteFile | undefined> {
    const response = await send(this.server, this.#pathOf(place, '/stat'))
    if (response.ok) return (await response.json()) as RemoteFile
    const { code } = (await response
      .clone()
      .json()
      .catch(() => ({}))) as { code?: string }
    if (code === 'path_not_found') return undefined
    throw await toClientError(response)
  }

  async *list(place: SandboxPlace): AsyncGenerator<RemoteFile, void, undefined> {
    for await (const file of everyListed<RemoteFile>(this.server, this.#pathOf(place))) yield requireName(file)
  }

  /** @returns the size, unless the server knows it only when the file has been read. */
  async read(place: SandboxPlace): Promise<{ size: number | undefined; bytes: Readable }> {
    const headers = { ...this.#headers, 'accept-encoding': 'identity' }
    const response = await fetch(this.#urlOf(place, '/content'), { headers, signal: this.server.stop })
    if (!response.ok || response.body === null) throw await toClientError(response)
    const length = response.headers.get('content-length')
    return { size: length === null ? undefined : Number(length), bytes: Readable.from(response.body) }
  }

  /** @param size absent: until the end of the bytes. */
  async write(place: SandboxPlace, bytes: Readable, how: { size?: number; mode?: number }): Promise<void> {
    const { size, mode } = how
    const url = this.#urlOf(place, '/content', {
      parents: 'true',
      ...(mode !== undefined && { mode: mode.toString(8) }),
    })
    const response = await fetch(url, {
      method: 'PUT',
      headers: { ...this.#headers, ...(size !== undefined && { 'content-length': `${size}` }) },
      body: size === 0 ? new Uint8Array(0) : Readable.toWeb(bytes),
      duplex: 'half',
      signal: this.server.stop,
    } as RequestInit)
    if (!response.ok) throw await toClientError(response)
    await response.arrayBuffer()
  }

  get #headers(): Record<string, string> {
    const { key } = this.server
    return key === undefined ? {} : { authorization: `Bearer ${key}` }
  }

  #urlOf(place: SandboxPlace, verb: string, more: Readonly<Record<string, string>> = {}): string {
    return `${this.server.url}${this.#pathOf(place, verb, more)}`
  }

  #pathOf({ sandbox, path }: SandboxPlace, verb = '', more: Readonly<Record<string, string>> = {}): string {
    const { namespace, user } = this.#options
    const named = { path, ...(namespace !== undefined && { namespace }), ...(user !== undefined && { user }) }
    return `/v1/sandboxes/${encodeURIComponent(sandbox)}/files${verb}?${new URLSearchParams({ ...named, ...more })}`
  }
}

/** BOUNDARY: a name of a sandbox becomes a name on this machine. */
function requireName(file: RemoteFile): RemoteFile {
  const { name } = file
  if (name !== '' && name !== '.' && name !== '..' && !/[/\0]/.test(name)) return file
  throw new ClientError(`the server sent ${JSON.stringify(name)} as the name of a file`)
}

/** Copies files between a sandbox and this machine, in either direction. `-` is standard input or output. */
export const copy = (from: string, to: string, options: FileOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox cp', io, async () => {
    const [source, target] = [placeOf(from), placeOf(to)]
    if ((source === undefined) === (target === undefined))
      throw new ClientError('one of the two must be NAME:PATH, and the other a path of this machine', exitCodes.usage)
    const files = new RemoteFiles(await serverOf(options, io), options)
    if (source) return to === '-' ? print(files, source, io) : download(files, source, to, options, io)
    if (from === '-') return uploadInput(files, target!, io)
    return upload(files, from, target!, options, io)
  })

async function uploadInput(files: RemoteFiles, target: SandboxPlace, io: ProcessIo): Promise<number> {
  await files.write(target, io.stdin as Readable, {})
  return exitCodes.ok
}

/** As cp does: into an existing directory under its own name, otherwise under the new one. */
async function upload(
  files: RemoteFiles,
  from: string,
  target: SandboxPlace,
  options: FileOptions,
  io: ProcessIo,
): Promise<number> {
  const found = await findLocalFiles([from])
  for (const path of found.skipped) note('sandbox cp', `skipped ${path}, which is neither a file nor a directory`, io)
  const isInto = target.path.endsWith('/') || (await files.find(target))?.kind === 'directory'
  const progress = new TransferProgress('sandbox cp', io, found.files.length, options.json === true)
  for (const file of found.files) {
    const own = file.target.split('/').slice(1).join('/')
    const path = posix.join(target.path, isInto ? file.target : own)
    await uploadFile(files, file, { ...target, path }, progress)
  }
  progress.end()
  return exitCodes.ok
}

async function uploadFile(files: RemoteFiles, { path, size }: LocalFile, to: SandboxPlace, progress: TransferProgress) {
  const step = progress.step(path, size)
  const mode = (await statLocal(path)).mode & 0o777
  // A file that grows meanwhile is uploaded as it was.
  const source = size === 0 ? Readable.from([]) : createReadStream(path, { end: size - 1 })
  try {
    await Promise.all([files.write(to, step, { size, mode }), pipeline(source, step)])
  } catch (error) {
    source.destroy()
    throw error instanceof ClientError ? new ClientError(`${path}: ${error.message}`, error.exitCode) : error
  }
  progress.done({ from: path, to: `${to.sandbox}:${to.path}`, size })
}

async function download(
  files: RemoteFiles,
  source: SandboxPlace,
  to: string,
  options: FileOptions,
  io: ProcessIo,
): Promise<number> {
  const file = await files.stat(source)
  const isInto = to.endsWith('/') || (await isDirectory(to))
  const name = posix.basename(source.path)
  const path = isInto ? join(to, name === '.' || name === '..' ? '' : name) : to
  const progress = new TransferProgress('sandbox cp', io, undefined, options.json === true)
  if (file.kind === 'directory') await downloadDirectory(files, source, path, progress, io)
  else {
    const target = await TargetDirectory.open(dirname(path))
    await save(files, source, file, { target, name: basename(path), shown: path }, progress)
  }
  progress.end()
  return progress.exitCode
}

const isDirectory = (path: string): Promise<boolean> =>
  statLocal(path).then(
    (status) => status.isDirectory(),
    () => false,
  )

async function downloadDirectory(
  files: RemoteFiles,
  { sandbox, path: root }: SandboxPlace,
  to: string,
  progress: TransferProgress,
  io: ProcessIo,
): Promise<void> {
  const target = await TargetDirectory.open(to)
  const pending = ['']
  for (let directory = pending.pop(); directory !== undefined; directory = pending.pop()) {
    for await (const file of files.list({ sandbox, path: posix.join(root, directory) })) {
      const name = posix.join(directory, file.name)
      const place = { sandbox, path: posix.join(root, name) }
      if (file.kind === 'directory') {
        await target.makeDirectory(name)
        pending.push(name)
      } else if (file.kind === 'file') {
        await save(files, place, file, { target, name, shown: join(to, name) }, progress).catch((error: unknown) =>
          progress.failed(error),
        )
      } else note('sandbox cp', `skipped ${place.path}, which is a ${file.kind}`, io)
    }
  }
}

interface Destination {
  target: TargetDirectory
  /** Relative to the target. */
  name: string
  /** As it is printed. */
  shown: string
}

async function save(
  files: RemoteFiles,
  from: SandboxPlace,
  { mode }: RemoteFile,
  { target, name, shown }: Destination,
  progress: TransferProgress,
): Promise<void> {
  const { size, bytes } = await files.read(from)
  const step = progress.step(from.path, size)
  const writing = target.write(name, step, size, Number.parseInt(mode, 8) & 0o777)
  try {
    const [written] = await Promise.all([writing, pipeline(bytes, step)])
    progress.done({ from: `${from.sandbox}:${from.path}`, to: shown, size: written })
  } catch (error) {
    bytes.destroy()
    throw error
  }
}

/** Prints a file, byte for byte unless standard output is a terminal. */
async function print(files: RemoteFiles, source: SandboxPlace, io: ProcessIo): Promise<number> {
  const { size, bytes } = await files.read(source)
  const printer = new RunPrinter(io)
  let printedBytes = 0
  for await (const piece of bytes as AsyncIterable<Uint8Array>) {
    printedBytes += piece.length
    await printer.print('stdout', Buffer.from(piece))
  }
  await printer.end()
  if (size !== undefined && printedBytes !== size)
    throw new ClientError(`${source.path} ended after ${printedBytes} of ${size} bytes`)
  return exitCodes.ok
}

/** Lists a directory of a sandbox, or one file. */
export const listFiles = (place: SandboxPlace, options: FileOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox ls', io, async () => {
    const files = new RemoteFiles(await serverOf(options, io), options)
    const named = await files.stat(place)
    const found: RemoteFile[] = []
    if (named.kind !== 'directory') found.push(named)
    else for await (const file of files.list(place)) found.push(file)
    if (options.long || options.json) printItems(found, columns, options, io)
    else for (const file of found) io.stdout.write(`${shownName(file, io.stdout)}\n`)
    return exitCodes.ok
  })

const marks = { directory: '/', link: '@', fifo: '|', socket: '=', device: '', file: '' } as const

const shownName = ({ name, kind }: RemoteFile, stdout: OutputStream): string =>
  `${printable(name, stdout)}${marks[kind]}`

const columns: Columns<RemoteFile> = {
  MODE: ({ mode }) => mode,
  OWNER: ({ uid, gid }) => `${uid}:${gid}`,
  SIZE: ({ size_bytes: bytes, kind }) => (kind === 'file' ? `${bytes}` : '-'),
  MODIFIED: ({ modified_at: at }) => at,
  NAME: ({ name, kind, target }) => `${name}${marks[kind]}${target === undefined ? '' : ` -> ${target}`}`,
}
