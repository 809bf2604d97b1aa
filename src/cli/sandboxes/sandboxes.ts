/** `glovebox sandbox`: the named sandboxes of a server. */
import type { Command } from 'commander'
import { exitCodeOf } from '../../base/exit-codes.ts'
import {
  everyListed,
  reporting,
  request,
  requestJson,
  type Server,
  send,
  serverOf,
  toClientError,
  withServer,
} from '../api-client.ts'
import { ClientError } from '../client-error.ts'
import { type Cli, collect, withExamples } from '../command.ts'
import { type Columns, printItems, printJson, withJson } from '../output.ts'
import { exitCodes, type ProcessIo } from '../process-io.ts'
import { printable } from '../terminal.ts'
import { listContexts, type RewindOptions, rewind } from './contexts.ts'
import { copy, type FileOptions, listFiles, placeOf as placeOfFiles } from './files.ts'
import { pathOf, type SandboxOptions, suffixOf } from './paths.ts'
import { closePort, listPorts, type OpenOptions, openPort } from './ports.ts'
import { followProcess, type Output, type Process, runAttached, sizeOf } from './processes.ts'

interface StartOptions extends SandboxOptions {
  image?: string
  memory?: string
  cpus?: string
  disk?: string
  env?: readonly string[]
  workdir?: string
  user?: string
  volume?: readonly string[]
  secret?: readonly string[]
  secrets?: boolean
  idleTimeout?: string
  lifetime?: string
}

interface ExecOptions extends SandboxOptions {
  cwd?: string
  user?: string
  env?: readonly string[]
  interactive?: boolean
  tty?: boolean
}

interface Sandbox {
  id: string
  namespace: string
  name: string
  state: string
  reason: string | null
  image: string | null
  memory_bytes: number
  created_at: string
}

const MiB = 1024 * 1024

export function register(program: Command, { io, exit }: Cli): void {
  const sandbox = program.command('sandbox').description('Start and use the named sandboxes of a server.')
  const add = (usage: string, description: string) =>
    withServer(sandbox.command(usage).description(description)).option('--namespace <name>', 'namespace of the sandbox')
  withExamples(
    withJson(
      add('ls [place]', 'List sandboxes, or with NAME:PATH the files of one, running or stopped.')
        .alias('list')
        .option('-l, --long', 'print mode, owner, size and time of each file')
        .option('--user <name>', 'user in the sandbox whose permissions apply'),
    ),
    'glovebox sandbox ls',
    'glovebox sandbox ls analysis:/workspace -l',
  ).action(async (place: string | undefined, options: FileOptions) => exit(await listAny(place, options, io)))
  withExamples(
    withJson(
      add(
        'cp <source> <target>',
        'Copy files and directories between this machine and a sandbox, running or stopped. One of both is NAME:PATH; "-" is standard input or output.',
      ).option('--user <name>', 'user in the sandbox who owns new files, and whose permissions apply'),
    ),
    'glovebox sandbox cp data.csv analysis:inputs/',
    'glovebox sandbox cp analysis:/workspace/results .',
    'pg_dump shop | glovebox sandbox cp - analysis:shop.sql',
  ).action(async (from: string, to: string, options: FileOptions) => exit(await copy(from, to, options, io)))
  withExamples(
    withJson(startOptions(add('start <name>', 'Start a sandbox, and create it if it does not exist.'))),
    'glovebox sandbox start analysis --memory 1024 --env TOKEN=abc',
  ).action(async (name: string, options: StartOptions) => exit(await start(name, options, io)))
  for (const verb of ['stop', 'restart', 'pause', 'resume'] as const) {
    withExamples(withJson(add(`${verb} <name>`, descriptions[verb])), `glovebox sandbox ${verb} analysis`).action(
      async (name: string, options: SandboxOptions) => exit(await change(verb, name, options, io)),
    )
  }
  withExamples(
    execOptions(
      add('exec <name> <command> [args...]', 'Run a program in a sandbox, with its input, output and exit code.'),
    )
      .option('-i, --interactive', 'pass on the input of a terminal as well')
      .option('-t, --tty', 'run it in a terminal of its own, with the size of this one')
      .option('--json', 'print the output and the ending as JSON when the program has ended, instead of its output'),
    'glovebox sandbox exec analysis -- python3 -c "print(1)"',
    'glovebox sandbox exec -it analysis -- python3',
  ).action(async (name: string, command: string, args: string[], options: ExecOptions) =>
    exit(await exec(name, { command, args }, options, io)),
  )
  withExamples(
    execOptions(add('shell <name> [command] [args...]', 'Open a shell in a sandbox, in this terminal.')),
    'glovebox sandbox shell analysis',
  ).action(async (name: string, command: string | undefined, args: string[], options: ExecOptions) =>
    exit(await shell(name, { command: command ?? 'bash', args }, options, io)),
  )
  withExamples(
    withJson(
      add(
        'logs <name> [process]',
        'Print the output of a background process, or list the processes. With --json and --follow, the lines of output as the server streams them.',
      ),
    ).option('-f, --follow', 'continue until the process has ended'),
    'glovebox sandbox logs analysis 3 -f',
  ).action(async (name: string, process: string | undefined, options: SandboxOptions & { follow?: boolean }) =>
    exit(await logs(name, process, options, io)),
  )
  withExamples(
    withJson(add('contexts <name>', 'List the interpreters of a sandbox that keep their state.')),
    'glovebox sandbox contexts analysis',
  ).action(async (name: string, options: SandboxOptions) => exit(await listContexts(name, options, io)))
  withExamples(
    withJson(add('rewind <name> [calls]', 'Undo the last calls of a Python context; one by default.'))
      .option('--context <id>', 'ID of the context; python by default')
      .option('--files', 'put the files of the sandbox back as well'),
    'glovebox sandbox rewind analysis 2 --context ctx_1 --files',
  ).action(async (name: string, calls: string | undefined, options: RewindOptions) =>
    exit(await rewind(name, calls, options, io)),
  )
  withExamples(
    withJson(add('ports <name>', 'List the published ports of a sandbox with their addresses.')),
    'glovebox sandbox ports analysis',
  ).action(async (name: string, options: SandboxOptions) => exit(await listPorts(name, options, io)))
  withExamples(
    withJson(add('open <name> <port>', 'Publish a port of a sandbox, and print an address for browsers.'))
      .option('--public', 'admit everyone who knows the address, instead of keys and signed links')
      .option('--expires <seconds>', 'time until the address ends; a day by default'),
    'glovebox sandbox open analysis 8000',
  ).action(async (name: string, port: string, options: OpenOptions) => exit(await openPort(name, port, options, io)))
  withExamples(
    withJson(add('close <name> <port>', 'Withdraw a published port; its open connections end.')),
    'glovebox sandbox close analysis 8000',
  ).action(async (name: string, port: string, options: SandboxOptions) =>
    exit(await closePort(name, port, options, io)),
  )
  withExamples(
    withJson(add('rm <names...>', 'Delete sandboxes with their disk.').alias('delete')),
    'glovebox sandbox rm analysis',
  ).action(async (names: string[], options: SandboxOptions) => exit(await remove(names, options, io)))
}

const descriptions = {
  stop: 'Stop a sandbox and keep its disk.',
  restart: 'Stop a sandbox and start it again.',
  pause: 'Freeze the processes of a sandbox.',
  resume: 'Continue a paused sandbox.',
} as const

const startOptions = (command: Command): Command =>
  command
    .option('--image <name>', 'image of a new sandbox')
    .option('--memory <MiB>', 'memory of a new sandbox')
    .option('--cpus <n>', 'CPU share of a new sandbox in cores')
    .option('--disk <MiB>', 'disk of a new sandbox')
    .option('--env <NAME=value>', 'environment variable of a new sandbox; may be repeated', collect)
    .option('--workdir <path>', 'working directory of a new sandbox')
    .option('--user <name>', 'user of the processes of a new sandbox')
    .option('--volume <slug>', 'volume of the profile that a new sandbox mounts; may be repeated', collect)
    .option('--secret <name>', 'secret of the profile that a new sandbox has, instead of all; may be repeated', collect)
    .option('--no-secrets', 'a new sandbox has no secret of the profile')
    .option('--idle-timeout <seconds>', 'time without calls after which a new sandbox stops; 0 for never')
    .option('--lifetime <seconds>', 'time after which a new sandbox stops; 0 for never')

const execOptions = (command: Command): Command =>
  command
    .option('--cwd <path>', 'working directory')
    .option('--user <name>', 'user in the sandbox')
    .option('--env <NAME=value>', 'environment variable; may be repeated', collect)

const columns: Columns<Sandbox> = {
  NAME: ({ name }) => name,
  NAMESPACE: ({ namespace }) => namespace,
  STATE: ({ state, reason }) => (reason === null ? state : `${state} (${reason})`),
  IMAGE: ({ image }) => image ?? 'default',
  MEMORY: ({ memory_bytes: bytes }) => `${Math.round(bytes / MiB)} MiB`,
  CREATED: ({ created_at: at }) => at,
}

function listAny(text: string | undefined, options: FileOptions, io: ProcessIo): Promise<number> {
  if (text === undefined) return list(options, io)
  const place = placeOfFiles(text)
  if (place) return listFiles(place, options, io)
  return reporting('sandbox ls', io, async () => {
    throw new ClientError(`${text} is not NAME:PATH, such as ${text}:.`, exitCodes.usage)
  })
}

const list = (options: SandboxOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox ls', io, async () => {
    const found: Sandbox[] = []
    const path = `/v1/sandboxes${suffixOf(options)}`
    for await (const one of everyListed<Sandbox>(await serverOf(options, io), path)) found.push(one)
    printItems(found, columns, options, io)
    return exitCodes.ok
  })

const start = (name: string, options: StartOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox start', io, async () => {
    const server = await serverOf(options, io)
    const existing = await send(server, `${pathOf(name)}/start${suffixOf(options)}`, { method: 'POST', body: {} })
    if (!existing.ok && existing.status !== 404) throw await toClientError(existing)
    const started = existing.ok
      ? ((await existing.json()) as Sandbox)
      : await requestJson<Sandbox>(server, '/v1/sandboxes', { body: toBody(name, options) })
    return print(started, options, io)
  })

function toBody(name: string, options: StartOptions): object {
  const { namespace, image, memory, cpus, disk, env = [], workdir, user, volume = [], idleTimeout, lifetime } = options
  const number = (text: string, option: string, factor = 1): number => {
    const value = Number(text)
    if (Number.isFinite(value) && text !== '') return value * factor
    throw new ClientError(`--${option} must be a number`, exitCodes.usage)
  }
  return {
    name,
    ...(namespace !== undefined && { namespace }),
    ...(image !== undefined && { image }),
    ...(memory !== undefined && { memory_bytes: number(memory, 'memory', MiB) }),
    ...(cpus !== undefined && { cpus: number(cpus, 'cpus') }),
    ...(disk !== undefined && { disk_bytes: number(disk, 'disk', MiB) }),
    ...(env.length > 0 && { env_vars: Object.fromEntries(env.map(toPair)) }),
    ...(workdir !== undefined && { workdir }),
    ...(user !== undefined && { user }),
    ...(volume.length > 0 && { volumes: volume }),
    ...(options.secrets === false ? { secrets: [] } : options.secret && { secrets: options.secret }),
    ...(idleTimeout !== undefined && { idle_timeout: number(idleTimeout, 'idle-timeout') }),
    ...(lifetime !== undefined && { lifetime: number(lifetime, 'lifetime') }),
  }
}

function toPair(text: string): [string, string] {
  const at = text.indexOf('=')
  return at === -1 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)]
}

const change = (verb: string, name: string, options: SandboxOptions, io: ProcessIo): Promise<number> =>
  reporting(`sandbox ${verb}`, io, async () => {
    const path = `${pathOf(name)}/${verb}${suffixOf(options)}`
    return print(await requestJson<Sandbox>(await serverOf(options, io), path, { body: {} }), options, io)
  })

function print(sandbox: Sandbox, options: SandboxOptions, io: ProcessIo): number {
  if (options.json) printJson(sandbox, io)
  else io.stdout.write(`${printable(sandbox.name, io.stdout)} is ${sandbox.state}.\n`)
  return exitCodes.ok
}

interface Words {
  command: string
  args: readonly string[]
}

const exec = (name: string, words: Words, options: ExecOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox exec', io, async () => {
    const { tty, interactive, json } = options
    if (tty && json) throw new ClientError('--tty cannot be combined with --json', exitCodes.usage)
    const started = { ...words, ...placeOf(options), ...(tty && { terminal: sizeOf(io) }) }
    const how = { json, interactive }
    return runAttached(await serverOf(options, io), pathOf(name), suffixOf(options), started, io, how)
  })

const shell = (name: string, words: Words, options: ExecOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox shell', io, async () => {
    const server = await serverOf(options, io)
    const started = { ...words, ...placeOf(options), terminal: sizeOf(io) }
    return runAttached(server, pathOf(name), suffixOf(options), started, io)
  })

const placeOf = ({ cwd, user, env = [] }: ExecOptions) => ({
  ...(cwd !== undefined && { cwd }),
  ...(user !== undefined && { user }),
  ...(env.length > 0 && { env_vars: Object.fromEntries(env.map(toPair)) }),
})

const processColumns: Columns<Process> = {
  PROCESS: ({ process }) => `${process}`,
  STATE: ({ ending }) => (ending === null ? 'running' : `ended (${exitCodeOf(ending)})`),
  STARTED: ({ started_at: at }) => at,
  COMMAND: ({ argv }) => argv.join(' '),
}

const logs = (
  name: string,
  process: string | undefined,
  options: SandboxOptions & { follow?: boolean },
  io: ProcessIo,
): Promise<number> =>
  reporting('sandbox logs', io, async () => {
    const server = await serverOf(options, io)
    if (process === undefined) return listProcesses(server, name, options, io)
    const path = `${pathOf(name)}/processes/${encodeURIComponent(process)}/output${suffixOf(options)}`
    if (options.follow) return exitCodeOf(await followProcess(server, path, io, options.json ? 'lines' : 'text'))
    const output = await requestJson<Output>(server, path)
    if (options.json) printJson(output, io)
    else {
      io.stdout.write(output.stdout)
      io.stderr.write(output.stderr)
    }
    return exitCodes.ok
  })

async function listProcesses(server: Server, name: string, options: SandboxOptions, io: ProcessIo): Promise<number> {
  const path = `${pathOf(name)}/processes${suffixOf(options)}`
  printItems((await requestJson<{ data: Process[] }>(server, path)).data, processColumns, options, io)
  return exitCodes.ok
}

const remove = (names: readonly string[], options: SandboxOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox rm', io, async () => {
    const server = await serverOf(options, io)
    for (const name of names) {
      await request(server, `${pathOf(name)}${suffixOf(options)}`, { method: 'DELETE' })
      if (options.json !== true) io.stdout.write(`Deleted ${printable(name, io.stdout)}.\n`)
    }
    if (options.json === true) printJson({ deleted: names }, io)
    return exitCodes.ok
  })
