import { Command, CommanderError } from 'commander'
import { StartRefused } from '../base/errors.ts'
import { addAdministration } from './admin-commands.ts'
import { receiveConfig } from './hand-over.ts'
import { exitCodes, type Io, type RunArguments } from './process-io.ts'
import { addSettingOptions, collect, configOf } from './setting-options.ts'
import type { StdioRequest } from './stdio.ts'
import type { TransferWords } from './transfer.ts'
import { version } from './version.ts'

/**
 * Runs one command.
 * @param words what follows the program's name on the command line
 * @returns the exit code; never throws
 */
export async function runProgram(words: readonly string[], io: Io): Promise<number> {
  let exitCode: number = exitCodes.ok
  const program = toProgram(io, (code) => {
    exitCode = code
  })
  try {
    await program.parseAsync(words, { from: 'user' })
    return exitCode
  } catch (error) {
    return explain(error, io)
  }
}

function explain(error: unknown, io: Io): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.ok : exitCodes.usage
  if (error instanceof StartRefused) {
    io.stderr.write(`glovebox: ${error.message}\n          ${error.remedy}\n`)
    return exitCodes.config
  }
  io.stderr.write(`glovebox: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
  return exitCodes.software
}

/** Every command on one screen; what each does is in the file of its name, loaded only when it is asked for. */
function toProgram(io: Io, exit: (code: number) => void): Command {
  const program = new Command('glovebox')
    .description('Runs code for AI agents, in real isolation.')
    .exitOverride()
    .configureOutput({ writeOut: (text) => io.stdout.write(text), writeErr: (text) => io.stderr.write(text) })
    .version(version, '--version', 'Print the version.')

  addSettingOptions(program.command('serve').description('Serve MCP and REST on this machine.')).action(
    async (_: object, command: Command) => {
      const { serve } = await import('./serve.ts')
      exit(await serve(configOf(command, io), io))
    },
  )

  addSettingOptions(
    program.command('doctor').description('Say what this machine offers and what stands in the way.'),
  ).action(async (_: object, command: Command) => {
    const { doctor } = await import('./doctor.ts')
    exit(await doctor(configOf(command, io), io))
  })

  addAdministration(program, { io, exit })

  program
    .command('run <file>')
    .description('Run a file ("-": standard input) through a running server, and exit with its code.')
    .option('--language <name>', 'python, node or bash; otherwise by the name of the file or its first line')
    .option('--timeout <seconds>', 'time limit; otherwise the default of the profile')
    .option('--env <NAME=value>', 'a variable of the run; may be repeated', collect, [])
    .option('--stdin <file>', 'file that the program reads as its standard input')
    .option('--url <url>', 'address of the server (GLOVEBOX_URL)')
    .action(async (file: string, options: Omit<RunArguments, 'file'>) => {
      const { run } = await import('./run.ts')
      exit(await run({ file, ...options }, io))
    })

  const transfer = (command: Command) =>
    command
      .option('--thread <id>', 'the thread; made when it is new')
      .option('--volume <slug>', 'or the volume')
      .option('--url <url>', 'address of the server (GLOVEBOX_URL)')
      .option('--key-file <file>', 'file that holds the key (or GLOVEBOX_KEY holds it)')
  transfer(program.command('push <files...>').description('Upload files to a thread or volume of a running server.'))
    .option('--path <directory>', 'where they go; the root by default')
    .action(async (files: string[], words: TransferWords) =>
      exit(await (await import('./transfer.ts')).push(files, words, io)),
    )
  transfer(
    program.command('pull <path> [to]').description('Download a file from a thread or volume of a running server.'),
  ).action(async (path: string, to: string | undefined, words: TransferWords) =>
    exit(await (await import('./transfer.ts')).pull(path, to, words, io)),
  )

  program
    .command('stdio')
    .description('Serve MCP on standard input and output, through the server of this machine or another.')
    .option('--url <url>', 'address of a server (GLOVEBOX_URL); otherwise the local one is joined, or started')
    .option('--key-file <file>', 'file that holds the key (or GLOVEBOX_KEY holds it)')
    .option('--toolsets <names>', 'groups of tools to show, with commas')
    .action(async (request: StdioRequest) => {
      const { stdio } = await import('./stdio.ts')
      exit(await stdio(request, io))
    })

  const config = program.command('config').description('Look at the configuration.')
  addSettingOptions(config.command('show').description('Print every setting and where it came from.')).action(
    async (_: object, command: Command) => {
      const { configShow } = await import('./config-show.ts')
      exit(configShow(configOf(command, io), io))
    },
  )

  program
    .command('version')
    .description('Print the version.')
    .action(() => void io.stdout.write(`${version}\n`))

  // Started by `doctor`, in a mount namespace of its own.
  program.command('doctor-inside', { hidden: true }).action(async () => {
    const { doctorInside } = await import('./doctor.ts')
    exit(await doctorInside(await receiveConfig(io.stdin), io))
  })

  // Started by the supervisor, which hands them the configuration on their standard input.
  program.command('runner', { hidden: true }).action(async () => {
    const { runner } = await import('./runner.ts')
    exit(await runner(await receiveConfig(io.stdin), io))
  })
  program.command('front', { hidden: true }).action(async () => {
    const { front } = await import('./front.ts')
    exit(await front(await receiveConfig(io.stdin), io))
  })
  return program
}
