/** `glovebox run`: runs a file through a server. */
import { basename, dirname, extname } from 'node:path'
import type { Command } from 'commander'
import { type Language, languages } from '../base/run.ts'
import { note, request, type Server, type ServerOptions, serverOf, withServer } from './api-client.ts'
import { ClientError } from './client-error.ts'
import { type Cli, collect, withExamples } from './command.ts'
import { FigureFiles } from './figures/figure-files.ts'
import { printJson } from './output.ts'
import { exitCodes, interruptedCode, type ProcessIo } from './process-io.ts'
import { readOwnInput, readText } from './program-input.ts'
import { type Execution, RunPrinter, readRun } from './run-lines.ts'

/** The arguments of `glovebox run`, as they were given. */
export interface RunArguments extends ServerOptions {
  /** `-`: the code comes from standard input. */
  file: string
  language?: string
  thread?: string
  timeout?: string
  /** `NAME=value`, in order. */
  env: readonly string[]
  /** A file that becomes the standard input of the program, `-` for that of the command; `false`: none. */
  stdin?: string | false
  /** Where figures are saved, by default beside the file; `false`: nowhere. */
  figures?: string | false
  /** Print the execution as JSON instead of the output of the program. */
  json?: boolean
}

export function register(program: Command, { io, exit }: Cli): void {
  withExamples(
    withServer(
      program
        .command('run <file>')
        .description('Run a file in a sandbox of a server, and exit with its exit code. "-" reads standard input.')
        .option('--thread <id>', 'thread whose files the program works on; created if it does not exist')
        .option('--language <name>', 'python, node, typescript or bash (default: by file extension or shebang)')
        .option('--timeout <seconds>', 'time limit (default: that of the profile)')
        .option('--env <NAME=value>', 'environment variable of the run; may be repeated', collect, [])
        .option('--stdin <file>', 'standard input of the program; "-" waits for that of the command')
        .option('--no-stdin', 'give the program no standard input')
        .option('--figures <directory>', 'where figures are saved (default: beside the file)')
        .option('--no-figures', 'do not save figures')
        .option('--json', 'print the execution as JSON when it has ended, instead of its output'),
    ),
    'glovebox run analysis.py --thread analysis --timeout 120',
    'glovebox run report.py <data.csv',
    'echo "print(6 * 7)" | glovebox run - --language python',
  ).action(async (file: string, options: Omit<RunArguments, 'file'>) => exit(await run({ file, ...options }, io)))
}

/** The exit code of timeout(1) and env(1) for a failure that is not the program's own. */
const ownFailure = 125
/** How long a request that may have started a run is waited for after an interruption, so that it can be cancelled. */
const interruptionMs = 2_000

/**
 * Runs a file on a server and passes on its output, byte for byte, while it is printed.
 * @returns the program's exit code; 128 + the signal that ended it, 124 when it timed out, 137 when it ran out of
 * memory, 130 when it was interrupted here, 64 for wrong arguments and 125 for any other failure.
 */
export async function run(args: RunArguments, io: ProcessIo): Promise<number> {
  try {
    const body = await toBody(args, io)
    return io.stop.aborted ? interruptedCode(io.stop) : await follow(await serverOf(args, io), body, args, io)
  } catch (error) {
    if (io.stop.aborted) return interruptedCode(io.stop)
    note('run', error instanceof Error ? error.message : String(error), io, 'red')
    return error instanceof ClientError && error.exitCode === exitCodes.usage ? exitCodes.usage : ownFailure
  }
}

async function toBody(args: RunArguments, io: ProcessIo): Promise<object> {
  if (args.file === '-' && args.stdin === '-') {
    throw new ClientError('standard input is the program itself; pass its input with --stdin FILE', exitCodes.usage)
  }
  const options = {
    ...(args.timeout !== undefined && { timeout: toSeconds(args.timeout) }),
    ...(args.env.length > 0 && { env_vars: Object.fromEntries(args.env.map(toVariable)) }),
    ...(args.thread !== undefined && { thread_id: args.thread }),
  }
  const code = await readText(args.file, io)
  const language = args.language ?? languageOf(args.file, code)
  const stdin = await inputOf(args, io)
  return { code, ...(language !== undefined && { language }), ...options, ...(stdin && { stdin }) }
}

async function inputOf({ file, stdin }: RunArguments, io: ProcessIo): Promise<string | undefined> {
  if (stdin === false) return undefined
  if (stdin !== undefined) return readText(stdin, io)
  return file === '-' ? undefined : readOwnInput(io)
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
  '.ts': 'typescript',
  '.mts': 'typescript',
  '.cts': 'typescript',
  '.sh': 'bash',
  '.bash': 'bash',
}

/**
 * Detects the language from the extension, then from the shebang line; `undefined`, without either, leaves it to the profile.
 * @throws ClientError for a file of another language.
 */
function languageOf(path: string, code: string): Language | undefined {
  const known = byExtension[extname(path).toLowerCase()]
  if (known !== undefined) return known
  const [, interpreter] = /^#!.*?\b(python|node|bash|sh)[\d.]*\b/.exec(code.split('\n', 1)[0] ?? '') ?? []
  if (interpreter === undefined && extname(path) !== '') {
    throw new ClientError(
      `the language of ${path} is unknown; use --language (${languages.join(', ')})`,
      exitCodes.usage,
    )
  }
  return interpreter === 'sh' ? 'bash' : (interpreter as Language | undefined)
}

async function follow(server: Server, body: object, args: RunArguments, io: ProcessIo): Promise<number> {
  const response = await request(server, '/v1/sandbox/execute?encoding=base64', {
    body,
    accept: 'application/x-ndjson',
    stop: later(io.stop),
  })
  if (response.body === null) throw new ClientError('the server sent no output')
  const printer = new RunPrinter(io)
  const figures = new FigureFiles(placeOfFigures(args), io, args.json === true)
  const isQuiet = args.json === true
  const execution = await readRun(response.body, {
    started: (runId) => whenAborted(io.stop, () => void cancel(server, runId)),
    output: async (stream, bytes) => (isQuiet ? undefined : printer.print(stream, bytes)),
    gap: (stream, bytes) => (isQuiet ? undefined : note('run', `omitted ${bytes} bytes of ${stream}`, io)),
    image: (image) => figures.add(image),
  })
  await printer.end()
  if (execution === undefined) throw new ClientError('the connection to the server closed before the run ended')
  if (isQuiet) printJson({ ...execution, figures: figures.saved }, io)
  else report(execution, io)
  if (io.stop.aborted) return interruptedCode(io.stop)
  return figures.failed && execution.exit_code === 0 ? ownFailure : (execution.exit_code ?? ownFailure)
}

/** Prints how the run ended, unless its program ended by itself. */
function report({ ending, error, images_dropped: dropped = 0 }: Execution, io: ProcessIo): void {
  if (dropped > 0) note('run', `${dropped} more figures exceed the limits of a run and are lost`, io)
  if (ending?.kind !== 'exited' && error) note('run', error, io, 'red')
}

function placeOfFigures({ file, figures }: RunArguments): { directory: string; stem: string } | undefined {
  if (figures === false) return undefined
  const stem = file === '-' ? 'figure' : `${basename(file, extname(file))}-figure`
  return { directory: figures ?? (file === '-' ? '.' : dirname(file)), stem }
}

async function cancel(server: Server, runId: string): Promise<void> {
  const never = new AbortController().signal
  await request(server, `/v1/executions/${encodeURIComponent(runId)}/cancel`, { method: 'POST', stop: never }).catch(
    () => {
      // The run has ended meanwhile, or the server is gone, and with it the stream of the output.
    },
  )
}

function whenAborted(signal: AbortSignal, act: () => void): void {
  if (signal.aborted) act()
  else signal.addEventListener('abort', act, { once: true })
}

/** Aborts a while after a signal. */
function later(signal: AbortSignal): AbortSignal {
  const delayed = new AbortController()
  whenAborted(signal, () => setTimeout(() => delayed.abort(signal.reason), interruptionMs).unref())
  return delayed.signal
}
