/** `glovebox completion`: completion scripts for shells, generated from the definitions of the commands. */
import type { Argument, Command, Option } from 'commander'
import { type Cli, withExamples } from './command.ts'
import { toBash } from './completion/bash.ts'
import { toFish } from './completion/fish.ts'
import { toZsh } from './completion/zsh.ts'
import { exitCodes } from './process-io.ts'

/** What can follow the words of one command. */
export interface Completable {
  /** The words that lead to it: `runs logs`; empty for the program itself. */
  path: string
  description: string
  commands: readonly { name: string; description: string }[]
  options: readonly CompletableOption[]
  /** Whether its arguments are files of this machine. */
  takesFiles: boolean
}

export interface CompletableOption {
  short: string | undefined
  long: string
  description: string
  /** What its value is, if it takes one. */
  value: 'file' | 'text' | undefined
}

const shells = { bash: toBash, zsh: toZsh, fish: toFish } as const

export function register(program: Command, cli: Cli): void {
  withExamples(
    program
      .command('completion <shell>')
      .description(`Print a completion script for ${Object.keys(shells).join(', ')}.`),
    'source <(glovebox completion bash)',
    'glovebox completion zsh >"$fpath[1]/_glovebox"',
    'glovebox completion fish >~/.config/fish/completions/glovebox.fish',
  ).action(async (shell: string) => {
    const generate = Object.hasOwn(shells, shell) ? shells[shell as keyof typeof shells] : undefined
    if (!generate) {
      cli.io.stderr.write(`glovebox completion: use ${Object.keys(shells).join(', ')} instead of ${shell}\n`)
      cli.exit(exitCodes.usage)
      return
    }
    cli.io.stdout.write(generate(completables(await cli.allCommands())))
  })
}

/** Describes a program, and all its commands that the help lists. */
export function completables(program: Command): Completable[] {
  const visit = (command: Command, path: string): Completable[] => {
    const visible = command.createHelp().visibleCommands(command)
    return [
      {
        path,
        description: summaryOf(command),
        commands: visible.map((child) => ({ name: child.name(), description: summaryOf(child) })),
        options: command.createHelp().visibleOptions(command).map(toCompletable),
        takesFiles: command.registeredArguments.some(isFile),
      },
      ...visible
        .filter(({ commands }) => commands !== undefined)
        .flatMap((child) => visit(child, `${path} ${child.name()}`.trim())),
    ]
  }
  return visit(program, '')
}

const summaryOf = (command: Command): string => command.description().split(/(?<=\.) /)[0] ?? ''

const isFile = (argument: Argument): boolean => /^(?:files?|target)$/.test(argument.name())

function toCompletable({ short, long, flags, description }: Option): CompletableOption {
  const value = /<(?<name>[^>]+)>/.exec(flags)?.groups?.name
  return {
    short,
    long: long ?? flags,
    description,
    value: value === undefined ? undefined : /file|directory|-dir$|--home$/.test(`${value} ${long}`) ? 'file' : 'text',
  }
}
