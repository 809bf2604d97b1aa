/** `glovebox runs`: the runs of a server, while they are running and after. */
import type { Command } from 'commander'
import {
  note,
  reporting,
  request,
  requestJson,
  type Server,
  type ServerOptions,
  serverOf,
  withServer,
} from './api-client.ts'
import { ClientError } from './client-error.ts'
import { type Cli, withExamples } from './command.ts'
import { readLines } from './lines.ts'
import { type Columns, printFields, printItems, printJson, withJson } from './output.ts'
import { exitCodes, interruptedCode, type ProcessIo } from './process-io.ts'
import { type Execution, RunPrinter, readRun, writeTo } from './run-lines.ts'
import { printable } from './terminal.ts'

type Options = ServerOptions & { json?: boolean }

interface ListOptions extends Options {
  thread?: string
  status?: string
  language?: string
  limit: string
}

export function register(program: Command, { io, exit }: Cli): void {
  const runs = program.command('runs').description('Inspect and cancel runs of a server.')
  const add = (usage: string, description: string) => withServer(withJson(runs.command(usage).description(description)))
  withExamples(
    add('ls', 'List runs, newest first.')
      .alias('list')
      .option('--thread <id>', 'runs of this thread')
      .option('--status <status>', 'running, success, failed, timeout, oom or cancelled')
      .option('--language <name>', 'runs of this language')
      .option('--limit <n>', 'maximum number of runs, up to 200', '20'),
    'glovebox runs ls --status running',
  ).action(async (options: ListOptions) => exit(await list(options, io)))
  withExamples(add('show <run>', 'Print a run.'), 'glovebox runs show trc_… --json').action(
    async (id: string, options: Options) => exit(await show(id, options, io)),
  )
  withExamples(
    add('logs <run>', 'Print the output of a run. With --json, its lines as the server streams them.').option(
      '-f, --follow',
      'continue until the run has ended',
    ),
    'glovebox runs logs -f trc_…',
  ).action(async (id: string, options: Options & { follow?: boolean }) => exit(await logs(id, options, io)))
  withExamples(add('cancel <runs...>', 'Cancel runs.'), 'glovebox runs cancel trc_…').action(
    async (ids: string[], options: Options) => exit(await cancel(ids, options, io)),
  )
}

const seconds = (ms: number | null): string => (ms === null ? '-' : `${(ms / 1_000).toFixed(3)} s`)

const columns: Columns<Execution> = {
  RUN: (run) => run.trace_id,
  STATUS: ({ status }) => status,
  EXIT: (run) => `${run.exit_code ?? '-'}`,
  LANGUAGE: ({ language }) => language,
  THREAD: (run) => run.thread_id ?? '-',
  CREATED: (run) => run.created_at,
  DURATION: (run) => seconds(run.duration_ms),
}

const list = (options: ListOptions, io: ProcessIo): Promise<number> =>
  reporting('runs ls', io, async () => {
    const { thread, status, language, limit } = options
    const query = new URLSearchParams({
      limit,
      ...(thread !== undefined && { thread_id: thread }),
      ...(status !== undefined && { status }),
      ...(language !== undefined && { language }),
    })
    const page = await requestJson<{ data: Execution[] }>(await serverOf(options, io), `/v1/executions?${query}`)
    printItems(page.data, columns, options, io)
    return exitCodes.ok
  })

type Shown = Execution & Record<string, unknown>

const fieldsOfRun: Readonly<Record<string, (run: Shown) => string | undefined>> = {
  run: (run) => run.trace_id,
  status: ({ status }) => status,
  'exit code': (run) => (run.exit_code === null ? undefined : `${run.exit_code}`),
  error: ({ error }) => error ?? undefined,
  language: ({ language }) => language,
  thread: (run) => run.thread_id ?? undefined,
  created: (run) => run.created_at,
  completed: (run) => run.completed_at ?? undefined,
  duration: (run) => (run.duration_ms === null ? undefined : seconds(run.duration_ms)),
  'cpu time': ({ cpu_time_ms: ms }) => (typeof ms === 'number' ? seconds(ms) : undefined),
  'peak memory': ({ memory_peak_bytes: bytes }) => (typeof bytes === 'number' ? `${bytes} bytes` : undefined),
  subject: ({ subject }) => (typeof subject === 'string' ? subject : undefined),
  metadata: ({ metadata }) => (metadata ? JSON.stringify(metadata) : undefined),
  delivery: ({ delivery }) => (delivery ? JSON.stringify(delivery) : undefined),
}

const pathOf = (id: string): string => `/v1/executions/${encodeURIComponent(id)}`

const show = (id: string, options: Options, io: ProcessIo): Promise<number> =>
  reporting('runs show', io, async () => {
    printFields(await requestJson<Shown>(await serverOf(options, io), pathOf(id)), fieldsOfRun, options, io)
    return exitCodes.ok
  })

const logs = (id: string, options: Options & { follow?: boolean }, io: ProcessIo): Promise<number> =>
  reporting('runs logs', io, async () => {
    const server = await serverOf(options, io)
    const { status } = await requestJson<Execution>(server, pathOf(id))
    if (status === 'running' && !options.follow) return printSoFar(server, id, options, io)
    if (options.json) return printLines(server, id, io)
    const printer = new RunPrinter(io)
    const ended = await follow(server, id, printer, io)
    await printer.end()
    return ended ? exitCodes.ok : interruptedCode(io.stop)
  })

/** The output of a running run, as text. */
async function printSoFar(server: Server, id: string, { json }: Options, io: ProcessIo): Promise<number> {
  const output = await requestJson<{ stdout: string | null; stderr: string | null }>(server, `${pathOf(id)}/output`)
  if (json) {
    printJson(output, io)
    return exitCodes.ok
  }
  const printer = new RunPrinter(io)
  for (const stream of ['stdout', 'stderr'] as const) await printer.print(stream, Buffer.from(output[stream] ?? ''))
  await printer.end()
  return exitCodes.ok
}

/** How often a lost connection is opened again without any progress in between. */
const maxReconnects = 10
const reconnectMs = 500

/** Prints output until the run has ended, over as many connections as it takes. @returns false if interrupted. */
async function follow(server: Server, id: string, printer: RunPrinter, io: ProcessIo): Promise<boolean> {
  let after = 0
  for (let failures = 0; ; failures++) {
    try {
      const response = await openStream(server, `${pathOf(id)}/output?encoding=base64&after=${after}`)
      const execution = await readRun(response, {
        output: (stream, bytes) => printer.print(stream, bytes),
        gap: (stream, bytes) => note('runs logs', `omitted ${bytes} bytes of ${stream}`, io),
        image: async () => note('runs logs', 'showed a figure; see: glovebox runs show --json', io),
        reached(seq) {
          after = seq
          failures = 0
        },
      })
      if (execution !== undefined) return reportEnding(execution, io)
    } catch (error) {
      if (io.stop.aborted) return false
      if (error instanceof ClientError && error.exitCode !== exitCodes.unavailable) throw error
      if (failures >= maxReconnects) throw error
    }
    await new Promise((resolve) => setTimeout(resolve, reconnectMs))
  }
}

function reportEnding({ ending, error, output_kept: isKept }: Shown, io: ProcessIo): true {
  if (isKept === false) note('runs logs', 'the output of this run is no longer stored', io)
  if (ending?.kind !== 'exited' && error) note('runs logs', error, io, 'red')
  return true
}

/** Opens a stream that the interruption of the command ends. */
async function openStream(server: Server, path: string): Promise<AsyncIterable<Uint8Array>> {
  const { body } = await request(server, path, { accept: 'application/x-ndjson', isCutOff: true })
  if (body === null) throw new ClientError('the server sent no output')
  return body
}

async function printLines(server: Server, id: string, { stdout }: ProcessIo): Promise<number> {
  for await (const line of readLines(await openStream(server, `${pathOf(id)}/output`))) {
    await writeTo(stdout, `${printable(line, stdout)}\n`)
  }
  return exitCodes.ok
}

const cancel = (ids: readonly string[], options: Options, io: ProcessIo): Promise<number> =>
  reporting('runs cancel', io, async () => {
    const server = await serverOf(options, io)
    const cancelled: unknown[] = []
    for (const id of ids) {
      cancelled.push(await requestJson(server, `${pathOf(id)}/cancel`, { method: 'POST' }))
      if (!options.json) io.stdout.write(`Cancelling ${printable(id, io.stdout)}.\n`)
    }
    if (options.json) printJson(cancelled, io)
    return exitCodes.ok
  })
