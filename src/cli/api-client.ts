/** How client commands reach a server: its address, the key, and readable errors. */
import { readFile } from 'node:fs/promises'
import type { Command } from 'commander'
import { exitCodes, type ProcessIo } from './process-io.ts'

/** Options of every command that talks to a server. */
export interface ServerOptions {
  url?: string
  keyFile?: string
}

const defaultUrl = 'http://127.0.0.1:5555'

/** Adds `--url` and `--key-file`. */
export const withServer = (command: Command): Command =>
  command
    .option('--url <url>', `address of the server (GLOVEBOX_URL; default: ${defaultUrl})`)
    .option('--key-file <file>', 'file with the API key (default: the variable GLOVEBOX_KEY)')

/** A failure of a client command, with the exit code that it ends with. */
export class ClientError extends Error {
  readonly exitCode: number

  constructor(message: string, exitCode: number = exitCodes.software) {
    super(message)
    this.exitCode = exitCode
  }
}

/** The server that a command talks to. */
export interface Server {
  url: string
  /** Not needed in development mode. */
  key: string | undefined
}

/** @throws ClientError when the key file can't be read. */
export async function serverOf({ url, keyFile }: ServerOptions, { env }: ProcessIo): Promise<Server> {
  return {
    url: (url ?? env.GLOVEBOX_URL ?? defaultUrl).replace(/\/+$/, ''),
    key: keyFile === undefined ? env.GLOVEBOX_KEY : await readKey(keyFile),
  }
}

async function readKey(path: string): Promise<string> {
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    throw new ClientError(`cannot read the key file: ${reasonOf(error)}`)
  }
}

/**
 * Sends a JSON body to the REST API.
 * @param accept media type of the answer
 * @param stop ends the wait for the start of the answer
 * @throws ClientError when no server answers; the error of fetch when `stop` aborted it.
 */
export async function post(
  { url, key }: Server,
  path: string,
  body: object,
  { accept = 'application/json', stop }: { accept?: string; stop?: AbortSignal } = {},
): Promise<Response> {
  // A signal of its own: aborting `stop` later must not cut off an answer that is being read.
  const waiting = new AbortController()
  const abort = () => waiting.abort()
  if (stop?.aborted) abort()
  stop?.addEventListener('abort', abort)
  try {
    return await fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept, ...(key && { authorization: `Bearer ${key}` }) },
      body: JSON.stringify(body),
      signal: waiting.signal,
    })
  } catch (error) {
    if (stop?.aborted) throw error
    const remedy = 'start one with: glovebox serve'
    throw new ClientError(`cannot connect to a server at ${url} (${reasonOf(error)}); ${remedy}`)
  } finally {
    stop?.removeEventListener('abort', abort)
  }
}

/** Describes an error answer in one sentence. */
export async function problemOf(response: Response): Promise<string> {
  const text = await response.text()
  try {
    const { message, hint } = JSON.parse(text) as { message?: string; hint?: string }
    if (response.status === 401) return `the server requires an API key in GLOVEBOX_KEY or --key-file: ${message}`
    return `the server refused the request: ${message ?? text} ${hint ?? ''}`.trim()
  } catch {
    return `the server answered with status ${response.status}`
  }
}

/** The code of a system error, or its text. */
export function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const { code } = cause as { code?: unknown }
  return typeof code === 'string' ? code : cause instanceof Error ? cause.message : String(cause)
}
