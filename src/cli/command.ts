import type { Command } from 'commander'
import type { ProcessIo } from './process-io.ts'

/** What commands get from the program that they belong to. */
export interface Cli {
  io: ProcessIo
  /** Sets the exit code of the process; 0 unless it is called. */
  exit(code: number): void
  /** Defines all commands that the help lists, not only the one that is used. */
  allCommands(): Promise<Command>
}

/** A file that defines commands. program.ts imports it only when one of its commands is used. */
export interface CommandModule {
  register(program: Command, cli: Cli): void
}

/** The help of a command ends with examples, one per line. */
export const withExamples = (command: Command, ...examples: readonly string[]): Command =>
  command.addHelpText('after', `\nExamples:\n${examples.map((example) => `  ${example}`).join('\n')}`)

/** The heading of settings in the help of a command. */
export const settingsHeading = 'Settings:'

/** Collects the values of an option that may be repeated. */
export const collect = (value: string, before: readonly string[] = []): readonly string[] => [...before, value]
