/** `glovebox push` and `glovebox pull`: files of this machine to a thread or volume of a server, and back. */
import { createReadStream, createWriteStream } from 'node:fs'
import { open, rename, rm, stat } from 'node:fs/promises'
import { basename } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Command } from 'commander'
import { ClientError, post, problemOf, type Server, type ServerOptions, serverOf, withServer } from './api-client.ts'
import { type Cli, withExamples } from './command.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'

interface TransferOptions extends ServerOptions {
  thread?: string
  volume?: string
  /** Of a push: the target directory; the root by default. */
  path?: string
}

export function register(program: Command, { io, exit }: Cli): void {
  const storage = (command: Command) =>
    withServer(
      command
        .option('--thread <id>', 'thread; created if it does not exist')
        .option('--volume <slug>', 'volume, instead of a thread'),
    )
  withExamples(
    storage(program.command('push <files...>').description('Upload files to a thread or volume of a server.')).option(
      '--path <directory>',
      'target directory (default: the root)',
    ),
    'glovebox push data.csv model.bin --thread analysis --path inputs',
  ).action(async (files: string[], options: TransferOptions) => exit(await push(files, options, io)))
  withExamples(
    storage(
      program.command('pull <path> [target]').description('Download a file from a thread or volume of a server.'),
    ),
    'glovebox pull out/figure.png --thread analysis',
  ).action(async (path: string, target: string | undefined, options: TransferOptions) =>
    exit(await pull(path, target, options, io)),
  )
}

/** Interval of the progress line on a terminal. */
const progressEveryMs = 200

/** Uploads files one after the other. @returns the exit code: 64 for wrong arguments, 70 when an upload failed. */
export function push(files: readonly string[], options: TransferOptions, io: ProcessIo): Promise<number> {
  return transferring('push', io, async () => {
    const server = await serverOf(options, io)
    const place = placeOf(options)
    for (const file of files) {
      const { size } = await statOf(file)
      const path = [options.path, basename(file)].filter(Boolean).join('/')
      const link = await linkTo(server, 'upload', { ...place, path, size }, io.stop)
      const bytes = size === 0 ? new Uint8Array(0) : counted(createReadStream(file), file, size, io)
      const response = await fetch(link.url, {
        method: 'PUT',
        headers: { 'content-length': String(size) },
        body: bytes instanceof Uint8Array ? bytes : Readable.toWeb(bytes),
        duplex: 'half',
        signal: io.stop,
      } as RequestInit)
      if (!response.ok) throw new ClientError(`${file}: ${await problemOf(response)}`)
      io.stderr.write(`${file} → ${path}, ${size} bytes\n`)
    }
    return exitCodes.ok
  })
}

/**
 * Downloads one file. The target is replaced only when the download is complete.
 * @param target path on this machine; by default the name of the file, in the current directory
 */
export function pull(path: string, to: string | undefined, options: TransferOptions, io: ProcessIo): Promise<number> {
  return transferring('pull', io, async () => {
    const server = await serverOf(options, io)
    const place = placeOf(options)
    const link = await linkTo(server, 'download', { ...place, path }, io.stop)
    const response = await fetch(link.url, { signal: io.stop })
    if (!response.ok || response.body === null) throw new ClientError(await problemOf(response))
    const size = Number(response.headers.get('content-length'))
    const target = to ?? basename(path)
    const incoming = `${target}.incoming`
    try {
      await pipeline(counted(Readable.from(response.body), path, size, io), createWriteStream(incoming))
      const { size: got } = await statOf(incoming)
      if (got !== size) throw new ClientError(`${path} ended after ${got} of ${size} bytes`)
      const file = await open(incoming)
      await file.sync().finally(() => file.close())
      await rename(incoming, target)
    } catch (error) {
      await rm(incoming, { force: true })
      throw error
    }
    io.stderr.write(`${path} → ${target}, ${size} bytes\n`)
    return exitCodes.ok
  })
}

async function transferring(command: string, io: ProcessIo, work: () => Promise<number>): Promise<number> {
  try {
    return await work()
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
    const problem = io.stop.aborted ? 'interrupted' : cause instanceof Error ? cause.message : String(cause)
    io.stderr.write(`glovebox ${command}: ${problem}\n`)
    return error instanceof ClientError ? error.exitCode : exitCodes.software
  }
}

/** @throws ClientError unless exactly one of thread and volume is given. */
function placeOf({ thread, volume }: TransferOptions): { source: 'thread' | 'volume'; id: string } {
  const id = thread ?? volume
  if (id === undefined || (thread !== undefined && volume !== undefined)) {
    throw new ClientError('use either --thread ID or --volume SLUG', exitCodes.usage)
  }
  return { source: thread === undefined ? 'volume' : 'thread', id }
}

async function statOf(file: string): Promise<{ size: number }> {
  const status = await stat(file)
  if (!status.isFile()) throw new ClientError(`${file} is not a regular file`, exitCodes.usage)
  return status
}

/** Creates a signed link, through which the bytes are then sent. */
async function linkTo(
  server: Server,
  direction: 'upload' | 'download',
  body: object,
  stop: AbortSignal,
): Promise<{ url: string }> {
  const response = await post(server, `/v1/files/${direction}`, body, { stop })
  if (!response.ok) throw new ClientError(await problemOf(response))
  return (await response.json()) as { url: string }
}

/** Passes the bytes on; on a terminal it shows the progress. */
function counted(bytes: Readable, name: string, size: number, { stderr }: ProcessIo): Readable {
  if (!stderr.isTTY) return bytes
  let [done, shownMs] = [0, 0]
  bytes.on('data', (piece: Buffer) => {
    done += piece.length
    if (Date.now() - shownMs < progressEveryMs && done < size) return
    shownMs = Date.now()
    stderr.write(`\r${name} ${Math.floor((done / size) * 100)} %${done < size ? '' : '\n'}`)
  })
  return bytes.pause()
}
