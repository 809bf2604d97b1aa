/** `glovebox run`: runs a file through a server. */
import { readFile } from 'node:fs/promises'
import { extname } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type { Command } from 'commander'
import type { Language } from '../base/run.ts'
import {
  ClientError,
  post,
  problemOf,
  reasonOf,
  type Server,
  type ServerOptions,
  serverOf,
  withServer,
} from './api-client.ts'
import { type Cli, withExamples } from './command.ts'
import { readLines } from './lines.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { collect } from './setting-options.ts'

/** The arguments of `glovebox run`, as they were given. */
export interface RunArguments extends ServerOptions {
  /** `-`: the code comes from standard input. */
  file: string
  language?: string
  timeout?: string
  /** `NAME=value`, in order. */
  env: readonly string[]
  /** A file that becomes the standard input of the program. */
  stdin?: string
}

export function register(program: Command, { io, exit }: Cli): void {
  withExamples(
    withServer(
      program
        .command('run <file>')
        .description('Run a file in a sandbox of a server, and exit with its exit code. "-" reads standard input.')
        .option('--language <name>', 'python, node or bash (default: by file extension or shebang)')
        .option('--timeout <seconds>', 'time limit (default: that of the profile)')
        .option('--env <NAME=value>', 'environment variable of the run; may be repeated', collect, [])
        .option('--stdin <file>', 'file for the standard input of the program'),
    ),
    'glovebox run analysis.py --timeout 120',
    'echo "print(6 * 7)" | glovebox run - --language python',
  ).action(async (file: string, options: Omit<RunArguments, 'file'>) => exit(await run({ file, ...options }, io)))
}

/** The exit code of timeout(1) and env(1) for a failure that is not the program's own. */
const ownFailure = 125
const interrupted = 130

/**
 * Runs a file on a server and passes on its output, byte for byte, while it is printed.
 * @returns the program's exit code; 128 + the signal that ended it, 124 when it timed out, 137 when it ran out of
 * memory, 130 when it was interrupted here, 64 for wrong arguments and 125 for any other failure.
 */
export async function run(args: RunArguments, io: ProcessIo): Promise<number> {
  try {
    return await follow(await serverOf(args, io), await toBody(args, io.stdin), io)
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error)
    io.stderr.write(`glovebox run: ${problem}\n`)
    return error instanceof ClientError && error.exitCode === exitCodes.usage ? exitCodes.usage : ownFailure
  }
}

async function toBody(args: RunArguments, stdin: Readable): Promise<object> {
  const source = args.file === '-' ? await buffer(stdin) : await readFileOf(args.file)
  const code = toText(source, args.file)
  const language = args.language ?? languageOf(args.file, code)
  return {
    code,
    ...(language !== undefined && { language }),
    ...(args.timeout !== undefined && { timeout: toSeconds(args.timeout) }),
    ...(args.env.length > 0 && { env_vars: Object.fromEntries(args.env.map(toVariable)) }),
    ...(args.stdin !== undefined && { stdin: toText(await readFileOf(args.stdin), args.stdin) }),
  }
}

async function readFileOf(path: string): Promise<Buffer> {
  try {
    return await readFile(path)
  } catch (error) {
    throw new ClientError(`cannot read ${path}: ${reasonOf(error)}`)
  }
}

/** Decodes strictly: invalid bytes must not be replaced silently. */
function toText(bytes: Uint8Array, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw new ClientError(`${path} is not UTF-8 text`)
  }
}

function toSeconds(text: string): number {
  if (!/^\d{1,5}$/.test(text)) throw new ClientError(`--timeout requires whole seconds, not ${text}`, exitCodes.usage)
  return Number(text)
}

function toVariable(text: string): [string, string] {
  const at = text.indexOf('=')
  if (at < 1) throw new ClientError(`--env requires NAME=value, not ${text}`, exitCodes.usage)
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

/** Detects the language from the extension, then from the shebang line; `undefined` leaves it to the profile. */
function languageOf(path: string, code: string): Language | undefined {
  const known = byExtension[extname(path).toLowerCase()]
  if (known !== undefined) return known
  const [, interpreter] = /^#!.*?\b(python|node|bash|sh)[\d.]*\b/.exec(code.split('\n', 1)[0] ?? '') ?? []
  return interpreter === 'sh' ? 'bash' : (interpreter as Language | undefined)
}

async function follow(server: Server, body: object, io: ProcessIo): Promise<number> {
  const accept = 'application/x-ndjson'
  const response = await post(server, '/v1/sandbox/execute?encoding=base64', body, { accept, stop: io.stop }).catch(
    (error: unknown) => {
      if (io.stop.aborted) return undefined
      throw error
    },
  )
  if (response === undefined) return interrupted
  if (!response.ok || response.body === null) throw new ClientError(await problemOf(response))
  const cancel = async (runId: string) => {
    await post(server, `/v1/executions/${encodeURIComponent(runId)}/cancel`, {}).catch(() => {
      // The server is gone, and so are the run and the stream of its output.
    })
  }
  for await (const line of readLines(response.body)) {
    const code = await take(line, io, cancel)
    if (code !== undefined) return io.stop.aborted ? interrupted : code
  }
  throw new ClientError('the connection to the server closed before the run ended')
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

/** Handles one line of the stream. @returns the exit code once the run has ended. */
async function take(
  text: string,
  io: ProcessIo,
  cancel: (runId: string) => Promise<void>,
): Promise<number | undefined> {
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
      io.stderr.write(`glovebox run: omitted ${line.bytes} bytes of ${line.stream}\n`)
      return undefined
    case 'error':
      throw new ClientError(`${line.message} ${line.hint ?? ''}`)
    case 'result':
      if (line.ending?.kind !== 'exited' && line.error) io.stderr.write(`glovebox run: ${line.error}\n`)
      return line.exit_code ?? ownFailure
    default:
      return undefined
  }
}

/** Waits for a slow reader, so that at most one line is held in memory. */
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
