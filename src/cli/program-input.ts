/** The code and the standard input of `glovebox run`, from files or from the standard input of the command. */
import { readFile } from 'node:fs/promises'
import { addAbortSignal } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { note, reasonOf } from './api-client.ts'
import { ClientError } from './client-error.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'

/** Standard input that sends nothing for so long without ending is not waited for. */
const silentMs = 500
/** No server accepts a larger request: the maximum of `max_body_bytes`. */
const maxInputBytes = 64 * 1024 * 1024

/**
 * Reads a file, or standard input for `-`.
 * @throws ClientError when it cannot be read or is not UTF-8; AbortError when the command is interrupted.
 */
export async function readText(path: string, { stdin, stop }: ProcessIo): Promise<string> {
  return toText(
    path === '-' ? await buffer(addAbortSignal(stop, stdin)) : await readFileOf(path),
    path === '-' ? 'standard input' : path,
  )
}

async function readFileOf(path: string): Promise<Buffer> {
  try {
    return await readFile(path)
  } catch (error) {
    throw new ClientError(`cannot read ${path}: ${reasonOf(error)}`, exitCodes.noInput)
  }
}

/** Decodes strictly: invalid bytes must not be replaced silently. */
function toText(bytes: Uint8Array, name: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw new ClientError(`${name} is not UTF-8 text`)
  }
}

/**
 * Reads the standard input of the command, to be passed on: all of a file, and of a pipe if it ends. A pipe that stays
 * open without sending anything belongs to something else, such as an agent or a CI job that started the command.
 * @returns `undefined` for a terminal and for such a pipe.
 * @throws ClientError when it is not UTF-8 or too large.
 */
export async function readOwnInput(io: ProcessIo): Promise<string | undefined> {
  const { stdin, stop } = io
  if (stdin.isTTY === true || stop.aborted) return undefined
  const bytes = await untilSilent(io)
  if (bytes !== undefined) return toText(bytes, 'standard input')
  if (!stop.aborted) note('run', 'standard input does not end and is not passed on; use --stdin - to wait for it', io)
  return undefined
}

function untilSilent({ stdin, stop }: ProcessIo): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = []
    let size = 0
    const silence = setTimeout(() => settle(undefined), silentMs)
    const add = (piece: Buffer) => {
      silence.refresh()
      pieces.push(piece)
      size += piece.length
      if (size > maxInputBytes) fail(new ClientError(`standard input has more than ${maxInputBytes} bytes`))
    }
    const finish = () => settle(Buffer.concat(pieces))
    const abandon = () => settle(undefined)
    const release = () => {
      clearTimeout(silence)
      stop.removeEventListener('abort', abandon)
      stdin.off('data', add).off('end', finish).off('error', fail).pause()
    }
    const settle = (content: Buffer | undefined) => {
      release()
      resolve(content)
    }
    const fail = (error: Error) => {
      release()
      reject(error)
    }
    stop.addEventListener('abort', abandon, { once: true })
    stdin.on('data', add).on('end', finish).on('error', fail)
  })
}
