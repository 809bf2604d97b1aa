import { Command, CommanderError, Help, type Option } from 'commander'
import { diskProblemOf } from '../base/disk-errors.ts'
import { Refusal, StartRefused } from '../base/errors.ts'
import { type Cli, type CommandModule, settingsHeading } from './command.ts'
import { printJson, withJson } from './output.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { hasColors, styled } from './terminal.ts'
import { version } from './version.ts'

/** The file of each command, in the order of `glovebox --help`. */
const commands: Readonly<Record<string, () => Promise<CommandModule>>> = {
  serve: () => import('./serve.ts'),
  doctor: () => import('./doctor.ts'),
  'install-service': () => import('./systemd/install-unit.ts'),
  config: () => import('./config-commands.ts'),
  run: () => import('./run.ts'),
  runs: () => import('./runs.ts'),
  ls: () => import('./transfer.ts'),
  push: () => import('./transfer.ts'),
  pull: () => import('./transfer.ts'),
  threads: () => import('./threads.ts'),
  sandbox: () => import('./sandboxes/sandboxes.ts'),
  workspaces: () => import('./workspaces.ts'),
  status: () => import('./status.ts'),
  top: () => import('./top.ts'),
  stdio: () => import('./stdio-command.ts'),
  apply: () => import('./admin/apply.ts'),
  diff: () => import('./admin/apply.ts'),
  orgs: () => import('./admin/orgs.ts'),
  keys: () => import('./admin/keys.ts'),
  profiles: () => import('./admin/profiles.ts'),
  volumes: () => import('./admin/volumes.ts'),
  images: () => import('./admin/images.ts'),
  upstreams: () => import('./admin/upstreams.ts'),
  tools: () => import('./admin/tools.ts'),
  limits: () => import('./admin/limits.ts'),
  usage: () => import('./admin/limits.ts'),
  history: () => import('./admin/retention.ts'),
  'webhook-secret': () => import('./admin/retention.ts'),
  audit: () => import('./admin/audit.ts'),
  subjects: () => import('./admin/subjects.ts'),
  tokens: () => import('./admin/tokens.ts'),
  secrets: () => import('./admin/secrets.ts'),
  backup: () => import('./backup/commands.ts'),
  restore: () => import('./backup/commands.ts'),
  completion: () => import('./completion.ts'),
}

/** Commands that the product starts itself; they are not in the help. */
const innerCommands: Readonly<Record<string, () => Promise<CommandModule>>> = {
  broker: () => import('./broker.ts'),
  runner: () => import('./runner.ts'),
  front: () => import('./front.ts'),
  'image-puller': () => import('./image-puller.ts'),
  'doctor-inside': () => import('./doctor.ts'),
}

/**
 * Runs one command.
 * @param args the arguments after the name of the program
 * @returns the exit code; never throws
 */
export async function runProgram(args: readonly string[], io: ProcessIo): Promise<number> {
  let exitCode: number = exitCodes.ok
  const cli: Cli = {
    io,
    exit(code) {
      exitCode = code
    },
    allCommands: () => loadCommands(cli),
  }
  try {
    const program = await loadProgram(args[0], cli)
    await program.parseAsync(args, { from: 'user' })
    return exitCode
  } catch (error) {
    return report(error, io)
  }
}

/** Loads the file of the command that is used, or all of them for the help and for unknown commands. */
async function loadProgram(name: string | undefined, cli: Cli): Promise<Command> {
  const all = { ...commands, ...innerCommands }
  const load = name !== undefined && Object.hasOwn(all, name) ? all[name] : undefined
  if (load) return defineProgram([await load()], cli)
  return printsVersion(name) ? defineProgram([], cli) : loadCommands(cli)
}

/** Loads all commands that the help lists. */
export async function loadCommands(cli: Cli): Promise<Command> {
  return defineProgram(await Promise.all(Object.values(commands).map((load) => load())), cli)
}

function defineProgram(modules: readonly CommandModule[], cli: Cli): Command {
  const { io } = cli
  const program = new Command('glovebox')
    .description('Runs code for AI agents in isolated sandboxes.')
    .exitOverride()
    .configureHelp({
      groupItems,
      styleTitle: (text) => styled(text, 'bold', io.stdout, io.env),
      styleCommandText: (text) => styled(text, 'cyan', io.stdout, io.env),
    })
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
      // What is styled above is already free of colors where the output gets none.
      getOutHasColors: () => true,
      getErrHasColors: () => hasColors(io.stderr, io.env),
      getOutHelpWidth: () => io.stdout.columns ?? 120,
    })
    .version(version, '--version', 'print the version')
  withJson(program.command('version').description('Print the version.')).action(({ json = false }) => {
    if (json) printJson({ version }, io)
    else io.stdout.write(`${version}\n`)
  })
  for (const module of new Set(modules)) module.register(program, cli)
  return program
}

const printsVersion = (name: string | undefined): boolean => name === 'version' || name === '--version'

/** In the help of a command its own options precede the settings, which many commands share. */
function groupItems<Item extends Command | Option>(
  unsorted: Item[],
  visible: Item[],
  groupOf: (item: Item) => string,
): Map<string, Item[]> {
  const groups = new Help().groupItems(unsorted, visible, groupOf)
  const settings = groups.get(settingsHeading)
  if (settings && groups.delete(settingsHeading)) groups.set(settingsHeading, settings)
  return groups
}

function report(error: unknown, io: ProcessIo): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.ok : exitCodes.usage
  const prefix = styled('glovebox:', 'red', io.stderr, io.env)
  if (error instanceof StartRefused) {
    io.stderr.write(`${prefix} ${error.message}\n          ${error.remedy}\n`)
    if (diskProblemOf(error) !== undefined) return exitCodes.ioError
    return error.cause instanceof Refusal ? exitCodes.unavailable : exitCodes.config
  }
  const problem = diskProblemOf(error)
  if (problem !== undefined) {
    const what = error instanceof Refusal ? '' : ` (${(error as Error).message})`
    io.stderr.write(`${prefix} The server cannot store data: ${problem}${what}.\n`)
    return exitCodes.ioError
  }
  if (error instanceof Refusal) {
    io.stderr.write(`${prefix} ${error.message}\n          ${error.hint}\n`)
    return exitCodes.unavailable
  }
  io.stderr.write(`${prefix} ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
  return exitCodes.software
}
