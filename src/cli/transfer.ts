/** Files of this machine to a thread or volume of a server, and back. */
import { createReadStream, createWriteStream } from 'node:fs'
import { open, readFile, rename, rm, stat } from 'node:fs/promises'
import { basename } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { exitCodes, type Io } from './process-io.ts'

/** The words of `glovebox push` and `glovebox pull`. */
export interface TransferWords {
  thread?: string
  volume?: string
  /** Of a push: the directory that the files go to; the root by default. */
  path?: string
  url?: string
  keyFile?: string
}

const defaultUrl = 'http://127.0.0.1:5555'
/** Of an interactive progress line. */
const tellEveryMs = 200

class TransferFailed extends Error {
  readonly exitCode: number

  constructor(message: string, exitCode: number = exitCodes.software) {
    super(message)
    this.exitCode = exitCode
  }
}

/** Uploads files, one after the other. @returns the exit code: 64 for wrong words, 70 where one was not uploaded. */
export function push(files: readonly string[], words: TransferWords, io: Io): Promise<number> {
  return transferring('push', io, async () => {
    const server = await serverOf(words, io)
    for (const file of files) {
      const { size } = await statOf(file)
      const path = [words.path, basename(file)].filter(Boolean).join('/')
      const link = await ask(server, 'upload', { ...server.place, path, size }, io.stop)
      const bytes = size === 0 ? new Uint8Array(0) : counted(createReadStream(file), file, size, io)
      const response = await fetch(link.url, {
        method: 'PUT',
        headers: { 'content-length': String(size) },
        body: bytes instanceof Uint8Array ? bytes : Readable.toWeb(bytes),
        duplex: 'half',
        signal: io.stop,
      } as RequestInit)
      if (!response.ok) throw new TransferFailed(`${file}: ${await explain(response)}`)
      io.stderr.write(`${file} → ${path}, ${size} bytes\n`)
    }
    return exitCodes.ok
  })
}

/**
 * Downloads one file; it takes its place when all of it is there.
 * @param to where it goes; by default its own name, here.
 */
export function pull(path: string, to: string | undefined, words: TransferWords, io: Io): Promise<number> {
  return transferring('pull', io, async () => {
    const server = await serverOf(words, io)
    const link = await ask(server, 'download', { ...server.place, path }, io.stop)
    const response = await fetch(link.url, { signal: io.stop })
    if (!response.ok || response.body === null) throw new TransferFailed(await explain(response))
    const size = Number(response.headers.get('content-length'))
    const target = to ?? basename(path)
    const incoming = `${target}.incoming`
    try {
      await pipeline(counted(Readable.from(response.body), path, size, io), createWriteStream(incoming))
      const { size: got } = await statOf(incoming)
      if (got !== size) throw new TransferFailed(`${path} ended after ${got} of ${size} bytes`)
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

async function transferring(command: string, io: Io, work: () => Promise<number>): Promise<number> {
  try {
    return await work()
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
    const problem = io.stop.aborted ? 'interrupted' : cause instanceof Error ? cause.message : String(cause)
    io.stderr.write(`glovebox ${command}: ${problem}\n`)
    return error instanceof TransferFailed ? error.exitCode : exitCodes.software
  }
}

interface Server {
  url: string
  key: string | undefined
  place: { source: 'thread' | 'volume'; id: string }
}

async function serverOf({ thread, volume, url, keyFile }: TransferWords, { env }: Io): Promise<Server> {
  const id = thread ?? volume
  if (id === undefined || (thread !== undefined && volume !== undefined)) {
    throw new TransferFailed('name one place: --thread ID or --volume SLUG', exitCodes.usage)
  }
  return {
    url: url ?? env.GLOVEBOX_URL ?? defaultUrl,
    key: keyFile === undefined ? env.GLOVEBOX_KEY : (await readFile(keyFile, 'utf8')).trim(),
    place: { source: thread === undefined ? 'volume' : 'thread', id },
  }
}

async function statOf(file: string): Promise<{ size: number }> {
  const status = await stat(file)
  if (!status.isFile()) throw new TransferFailed(`${file} is not a regular file`, exitCodes.usage)
  return status
}

async function ask(
  { url, key }: Server,
  what: 'upload' | 'download',
  body: object,
  signal: AbortSignal,
): Promise<{ url: string }> {
  const response = await fetch(`${url}/v1/files/${what}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(key !== undefined && { authorization: `Bearer ${key}` }) },
    body: JSON.stringify(body),
    signal,
  })
  if (!response.ok) throw new TransferFailed(await explain(response))
  return (await response.json()) as { url: string }
}

/** The same bytes; on a terminal it is told how many there were. */
function counted(bytes: Readable, name: string, size: number, { stderr }: Io): Readable {
  if (!stderr.isTTY) return bytes
  let [done, toldMs] = [0, 0]
  bytes.on('data', (piece: Buffer) => {
    done += piece.length
    if (Date.now() - toldMs < tellEveryMs && done < size) return
    toldMs = Date.now()
    stderr.write(`\r${name} ${Math.floor((done / size) * 100)} %${done < size ? '' : '\n'}`)
  })
  return bytes.pause()
}

async function explain(response: Response): Promise<string> {
  const text = await response.text()
  try {
    const { message, hint } = JSON.parse(text) as { message?: string; hint?: string }
    if (response.status === 401 && hint === undefined) return `the server needs a key in GLOVEBOX_KEY: ${message}`
    return `the server refused: ${message ?? text} ${hint ?? ''}`.trim()
  } catch {
    return `the server answered ${response.status}`
  }
}
