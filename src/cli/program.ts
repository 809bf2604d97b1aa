import { Command, CommanderError, Help, type Option } from 'commander'
import { StartRefused } from '../base/errors.ts'
import type { Cli, CommandModule } from './command.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { settingsHeading } from './setting-options.ts'
import { version } from './version.ts'

/** The file of each command, in the order of `glovebox --help`. */
const commands: Readonly<Record<string, () => Promise<CommandModule>>> = {
  serve: () => import('./serve.ts'),
  doctor: () => import('./doctor.ts'),
  config: () => import('./config-commands.ts'),
  run: () => import('./run.ts'),
  push: () => import('./transfer.ts'),
  pull: () => import('./transfer.ts'),
  stdio: () => import('./stdio-command.ts'),
  orgs: () => import('./admin/orgs.ts'),
  keys: () => import('./admin/keys.ts'),
  profiles: () => import('./admin/profiles.ts'),
  volumes: () => import('./admin/volumes.ts'),
  tools: () => import('./admin/tools.ts'),
  limits: () => import('./admin/limits.ts'),
  usage: () => import('./admin/limits.ts'),
  history: () => import('./admin/retention.ts'),
  'webhook-secret': () => import('./admin/retention.ts'),
  audit: () => import('./admin/audit.ts'),
  subjects: () => import('./admin/subjects.ts'),
  tokens: () => import('./admin/tokens.ts'),
  secrets: () => import('./admin/secrets.ts'),
}

/** Commands that the product starts itself; they are not in the help. */
const innerCommands: Readonly<Record<string, () => Promise<CommandModule>>> = {
  runner: () => import('./runner.ts'),
  front: () => import('./front.ts'),
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
  const { io } = cli
  const program = new Command('glovebox')
    .description('Runs code for AI agents in isolated sandboxes.')
    .exitOverride()
    .configureHelp({ groupItems })
    .configureOutput({ writeOut: (text) => io.stdout.write(text), writeErr: (text) => io.stderr.write(text) })
    .version(version, '--version', 'print the version')
  program
    .command('version')
    .description('Print the version.')
    .action(() => void io.stdout.write(`${version}\n`))
  const all = { ...commands, ...innerCommands }
  const load = name !== undefined && Object.hasOwn(all, name) ? all[name] : undefined
  const wanted = load ? [load] : printsVersion(name) ? [] : Object.values(commands)
  const modules = await Promise.all(wanted.map((each) => each()))
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
  if (error instanceof StartRefused) {
    io.stderr.write(`glovebox: ${error.message}\n          ${error.remedy}\n`)
    return exitCodes.config
  }
  io.stderr.write(`glovebox: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
  return exitCodes.software
}
