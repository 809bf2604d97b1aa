import { readFile } from 'node:fs/promises'
import { extname } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type { Language } from '../base/run.ts'
import { readLines } from './lines.ts'
import { exitCodes, type Io, type RunArguments } from './process-io.ts'

const defaultUrl = 'http://127.0.0.1:5555'

/** What `timeout(1)`, `env(1)` and the shells use for a failure that is not the program's own. */
const ownFailure = 125
const interrupted = 130

/** Says what is wrong and with which exit code we end. */
class RunFailed extends Error {
  readonly exitCode: number

  constructor(message: string, exitCode: number = ownFailure) {
    super(message)
    this.exitCode = exitCode
  }
}

/**
 * Runs a file through a running server. Its output comes as it is printed, byte for byte.
 * @returns the program's exit code; 128 + its signal, 124 when it timed out, 137 when it was out of memory, 130 when
 * it was interrupted here, 64 for wrong words and 125 for any other failure that is not the program's.
 */
export async function run(words: RunArguments, io: Io): Promise<number> {
  try {
    const server = { url: words.url ?? io.env.GLOVEBOX_URL ?? defaultUrl, key: io.env.GLOVEBOX_KEY }
    return await follow(server, await toBody(words, io.stdin), io)
  } catch (error) {
    const problem = error instanceof RunFailed ? error.message : `it failed: ${String(error)}`
    io.stderr.write(`glovebox run: ${problem}\n`)
    return error instanceof RunFailed ? error.exitCode : ownFailure
  }
}

async function toBody(words: RunArguments, stdin: Readable): Promise<object> {
  const source = words.file === '-' ? await buffer(stdin) : await readFileOf(words.file)
  const code = toText(source, words.file)
  const language = words.language ?? languageOf(words.file, code)
  return {
    code,
    ...(language !== undefined && { language }),
    ...(words.timeout !== undefined && { timeout: toSeconds(words.timeout) }),
    ...(words.env.length > 0 && { env_vars: Object.fromEntries(words.env.map(toVariable)) }),
    ...(words.stdin !== undefined && { stdin: toText(await readFileOf(words.stdin), words.stdin) }),
  }
}

async function readFileOf(path: string): Promise<Buffer> {
  try {
    return await readFile(path)
  } catch (error) {
    throw new RunFailed(`${path} cannot be read: ${error instanceof Error ? error.message : String(error)}`)
  }
}

/** What is sent is what is run, so nothing may be replaced on the way. */
function toText(bytes: Uint8Array, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw new RunFailed(`${path} is not UTF-8 text`)
  }
}

function toSeconds(text: string): number {
  if (!/^\d{1,5}$/.test(text)) throw new RunFailed(`--timeout takes whole seconds, not ${text}`, exitCodes.usage)
  return Number(text)
}

function toVariable(text: string): [string, string] {
  const at = text.indexOf('=')
  if (at < 1) throw new RunFailed(`--env takes NAME=value, not ${text}`, exitCodes.usage)
  return [text.slice(0, at), text.slice(at + 1)]
}

const byExtension: Readonly<Record<string, Language>> = {
  '.py': 'python',
  '.js': 'node',
  '.mjs': 'node',
  '.cjs': 'node',
  '.sh': 'bash',
  '.bash': 'bash',
}

/** By the name of the file, then by its first line (`#!/usr/bin/env python3`); otherwise the server decides. */
function languageOf(path: string, code: string): Language | undefined {
  const known = byExtension[extname(path).toLowerCase()]
  if (known !== undefined) return known
  const [, interpreter] = /^#!.*?\b(python|node|bash|sh)[\d.]*\b/.exec(code.split('\n', 1)[0] ?? '') ?? []
  return interpreter === 'sh' ? 'bash' : (interpreter as Language | undefined)
}

interface Server {
  url: string
  /** Where one is needed. */
  key: string | undefined
}

async function follow(server: Server, body: object, io: Io): Promise<number> {
  const executing = post(server, '/v1/sandbox/execute?encoding=base64', body, io.stop)
  const response = await executing.catch((error: unknown) => {
    if (io.stop.aborted) return undefined
    throw new RunFailed(`no server answers at ${server.url} (${reasonOf(error)}); start one with glovebox serve`)
  })
  if (response === undefined) return interrupted
  if (!response.ok || response.body === null) throw new RunFailed(await explain(response))
  const cancel = async (runId: string) => {
    await post(server, `/v1/executions/${encodeURIComponent(runId)}/cancel`, {}).catch(() => {
      // The server is gone, and with it the run; the lines end then too.
    })
  }
  for await (const line of readLines(response.body)) {
    const code = await take(line, io, cancel)
    if (code !== undefined) return io.stop.aborted ? interrupted : code
  }
  throw new RunFailed('the server went away before the run ended')
}

/** @param stop ends the wait for an answer that has not begun. */
async function post({ url, key }: Server, path: string, body: object, stop?: AbortSignal): Promise<Response> {
  const waiting = new AbortController()
  const abort = () => waiting.abort()
  if (stop?.aborted) abort()
  stop?.addEventListener('abort', abort)
  try {
    return await fetch(`${url}${path}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/x-ndjson',
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
      },
      body: JSON.stringify(body),
      signal: waiting.signal,
    })
  } finally {
    stop?.removeEventListener('abort', abort)
  }
}

interface Line {
  type?: string
  trace_id?: string
  data_base64?: string
  stream?: string
  bytes?: number
  message?: string
  hint?: string
  exit_code?: number | null
  error?: string | null
  ending?: { kind?: string }
}

/** Does what one line says. @returns the exit code once the run has ended. */
async function take(text: string, io: Io, cancel: (runId: string) => Promise<void>): Promise<number | undefined> {
  const line = JSON.parse(text) as Line
  switch (line.type) {
    case 'status': {
      const runId = line.trace_id ?? ''
      if (io.stop.aborted) await cancel(runId)
      else io.stop.addEventListener('abort', () => void cancel(runId), { once: true })
      return undefined
    }
    case 'stdout':
    case 'stderr':
      await writeTo(io[line.type], Buffer.from(line.data_base64 ?? '', 'base64'))
      return undefined
    case 'gap':
      io.stderr.write(`glovebox run: ${line.bytes} bytes of ${line.stream} were left out\n`)
      return undefined
    case 'error':
      throw new RunFailed(`${line.message} ${line.hint ?? ''}`)
    case 'result':
      if (line.ending?.kind !== 'exited' && line.error) io.stderr.write(`glovebox run: ${line.error}\n`)
      return line.exit_code ?? ownFailure
    default:
      return undefined
  }
}

/** Waits where the reader of our output is slow, so that we hold no more than one line. */
async function writeTo(output: Writable, bytes: Buffer): Promise<void> {
  if (output.destroyed || output.write(bytes)) return
  await new Promise<void>((resolve) => {
    const settle = () => {
      output.off('drain', settle).off('close', settle).off('error', settle)
      resolve()
    }
    output.on('drain', settle).on('close', settle).on('error', settle)
  })
}

async function explain(response: Response): Promise<string> {
  const text = await response.text()
  try {
    const { message, hint } = JSON.parse(text) as { message?: string; hint?: string }
    if (response.status === 401) return `the server needs a key in GLOVEBOX_KEY: ${message}`
    return `the server refused: ${message ?? text} ${hint ?? ''}`.trim()
  } catch {
    return `the server answered ${response.status}`
  }
}

function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const { code } = cause as { code?: unknown }
  return typeof code === 'string' ? code : String(cause)
}
