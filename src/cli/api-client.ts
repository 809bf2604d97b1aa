/** How client commands reach a server: its address, the key, requests, and readable errors. */
import { readFile } from 'node:fs/promises'
import type { Command } from 'commander'
import { ClientError } from './client-error.ts'
import { findLocalServer } from './local-server.ts'
import { exitCodes, interruptedCode, type ProcessIo } from './process-io.ts'
import { printable, styled } from './terminal.ts'

/** Options of every command that talks to a server. */
export interface ServerOptions {
  url?: string
  keyFile?: string
}

const defaultUrl = 'http://127.0.0.1:5555'

/** Adds `--url` and `--key-file`. */
export const withServer = (command: Command): Command =>
  command
    .option('--url <url>', `address of the server (GLOVEBOX_URL; default: that of this machine, or ${defaultUrl})`)
    .option('--key-file <file>', 'file with the API key (default: the variable GLOVEBOX_KEY)')

/** The server that a command talks to. */
export interface Server {
  url: string
  /** Not needed in development mode. */
  key: string | undefined
  /** Aborts when the command is interrupted. */
  stop: AbortSignal
}

/** @throws ClientError when the key file can't be read. */
export async function serverOf({ url, keyFile }: ServerOptions, { env, stop }: ProcessIo): Promise<Server> {
  const address = url ?? (env.GLOVEBOX_URL || localUrl(env))
  return {
    url: address.replace(/\/+$/, ''),
    key: (keyFile === undefined ? env.GLOVEBOX_KEY : await readKey(keyFile)) || undefined,
    stop,
  }
}

/** Address of the server of this machine: by GLOVEBOX_PORT, which the server reads as well, or of the one that is running. */
export const localUrl = (env: ProcessIo['env']): string =>
  env.GLOVEBOX_PORT ? `http://127.0.0.1:${env.GLOVEBOX_PORT}` : (findLocalServer(env)?.url ?? defaultUrl)

async function readKey(path: string): Promise<string> {
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    throw new ClientError(`cannot read the key file: ${reasonOf(error)}`, exitCodes.noInput)
  }
}

interface RequestOptions {
  method?: 'GET' | 'POST' | 'DELETE'
  /** Sent as JSON. */
  body?: object
  /** Media type of the answer. */
  accept?: string
  /** Ends the wait for the start of the answer; by default the interruption of the command. */
  stop?: AbortSignal
  /** Whether the interruption also ends an answer that is being read. */
  isCutOff?: boolean
}

/**
 * Sends a request to the API.
 * @throws ClientError when no server answers, or it refuses the request; the error of fetch when `stop` aborted it.
 */
export async function request(server: Server, path: string, options: RequestOptions = {}): Promise<Response> {
  const response = await send(server, path, options)
  if (!response.ok) throw await toClientError(response)
  return response
}

/** As `request`, and returns the answer also if the server refuses. */
export async function send(server: Server, path: string, options: RequestOptions = {}): Promise<Response> {
  const { method = options.body ? 'POST' : 'GET', body, accept = 'application/json', stop = server.stop } = options
  const { url, key } = server
  // A signal of its own: aborting `stop` later must not cut off an answer that is being read.
  const waiting = new AbortController()
  const abort = () => waiting.abort()
  if (stop.aborted) abort()
  stop.addEventListener('abort', abort)
  return await fetch(`${url}${path}`, {
    method,
    headers: {
      accept,
      ...(method === 'POST' && { 'content-type': 'application/json' }),
      ...(key && { authorization: `Bearer ${key}` }),
    },
    ...(body && { body: JSON.stringify(body) }),
    signal: waiting.signal,
  })
    .catch((error: unknown) => {
      if (stop.aborted) throw error
      const problem = `cannot connect to a server at ${url} (${reasonOf(error)}); start one with: glovebox serve`
      throw new ClientError(problem, exitCodes.unavailable)
    })
    .finally(() => {
      if (options.isCutOff !== true) stop.removeEventListener('abort', abort)
    })
}

/** Sends a request and reads its JSON answer. @throws ClientError as `request`. */
export async function requestJson<Answer>(server: Server, path: string, options: RequestOptions = {}): Promise<Answer> {
  return (await (await request(server, path, options)).json()) as Answer
}

/** Yields every item of a list, page by page. @param path with its query. @throws ClientError as `request`. */
export async function* everyListed<Item>(server: Server, path: string): AsyncGenerator<Item, void, undefined> {
  const address = new URL(path, 'http://list')
  if (!address.searchParams.has('limit')) address.searchParams.set('limit', '200')
  for (;;) {
    const page = await requestJson<{ data: Item[]; next_cursor: string | null }>(
      server,
      `${address.pathname}${address.search}`,
    )
    yield* page.data
    if (page.next_cursor === null) return
    address.searchParams.set('cursor', page.next_cursor)
  }
}

/** Describes an error answer in one sentence. */
export async function toClientError(response: Response): Promise<ClientError> {
  const text = await response.text()
  const exitCode = exitCodeOf(response.status)
  try {
    const { error, message, hint } = JSON.parse(text) as { error?: string; message?: string; hint?: string }
    const problem =
      response.status === 401
        ? `the server requires an API key in GLOVEBOX_KEY or --key-file: ${message}`
        : `the server refused the request: ${message ?? text} ${hint ?? ''}`.trim()
    return new ClientError(problem, exitCode, error)
  } catch {
    return new ClientError(`the server answered with status ${response.status}`, exitCode)
  }
}

function exitCodeOf(status: number): number {
  if (status === 401 || status === 403) return exitCodes.noPermission
  if (status === 409 || status === 429) return exitCodes.temporary
  return status === 502 || status === 503 || status === 504 ? exitCodes.unavailable : exitCodes.software
}

/** Prints a message of a client command to standard error. */
export function note(command: string, message: string, { stderr, env }: ProcessIo, style: 'red' | 'dim' = 'dim'): void {
  stderr.write(`${styled(`glovebox ${command}:`, style, stderr, env)} ${printable(message, stderr)}\n`)
}

/**
 * Does the work of a client command, and prints its failure.
 * @returns the exit code of the work or of its failure: 128 + the signal if the command was interrupted.
 */
export async function reporting(command: string, io: ProcessIo, work: () => Promise<number>): Promise<number> {
  try {
    return await work()
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
    note(command, io.stop.aborted ? 'interrupted' : cause instanceof Error ? cause.message : String(cause), io, 'red')
    if (io.stop.aborted) return interruptedCode(io.stop)
    return error instanceof ClientError ? error.exitCode : exitCodes.software
  }
}

/** The code of a system error, or its text. */
export function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const { code } = cause as { code?: unknown }
  return typeof code === 'string' ? code : cause instanceof Error ? cause.message : String(cause)
}
