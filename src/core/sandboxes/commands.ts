import { constants } from 'node:os'
import { Refusal } from '../../base/errors.ts'
import type { ProcessSpec, TerminalSize } from '../../base/sandbox.ts'
import { checkVariables } from '../access/variables.ts'
import type { Caller } from '../caller.ts'

/** What a caller asks to execute in a sandbox: a program with exact arguments, without a shell. */
export interface CommandRequest {
  command: string
  args?: readonly string[] | undefined
  env?: Readonly<Record<string, unknown>> | undefined
  cwd?: string | undefined
  user?: string | undefined
  /** Absent: the default of the profile for commands, none for background processes. */
  timeoutMs?: number | undefined
}

export interface ProcessRequest extends CommandRequest {
  /** Whether standard input can be written. */
  stdin?: boolean | undefined
  terminal?: TerminalSize | undefined
}

export const sigkill = 9

const argumentsMax = 4_096
/** The kernel accepts 128 KiB for one argument (MAX_ARG_STRLEN) and 2 MiB for all. */
const argumentMaxBytes = 128 * 1024 - 1
const argumentsMaxBytes = 1024 * 1024
const terminalMax = 1_000

const invalid = (field: string, problem: string) => new Refusal('invalid_argument', { field, problem })

/**
 * Checks a command.
 * @throws Refusal invalid_argument, command_is_shell, timeout_too_long.
 */
export function toProcessSpec(caller: Caller, asked: ProcessRequest): ProcessSpec {
  const { command, args = [], env, cwd, user, timeoutMs, stdin, terminal } = asked
  checkCommand(command)
  checkArguments(args)
  if (cwd !== undefined) checkCwd(cwd)
  if (user !== undefined && !/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$/.test(user))
    throw invalid('user', 'must be the name or number of a user')
  if (timeoutMs !== undefined) checkTimeout(caller, timeoutMs)
  if (terminal) checkTerminal(terminal)
  return {
    argv: [command, ...args],
    ...(env && { env: checkVariables(env) }),
    ...(cwd !== undefined && { cwd }),
    ...(user !== undefined && { user }),
    ...(timeoutMs !== undefined && { timeoutMs: Math.ceil(timeoutMs) }),
    ...(terminal && { terminal }),
    ...((stdin || terminal) && { stdin: true }),
  }
}

/** @throws Refusal invalid_argument. */
export function checkCwd(cwd: string): void {
  if (!/^\/[^\0]{0,4095}$/.test(cwd) || !cwd.isWellFormed()) throw invalid('cwd', 'must be an absolute path')
}

/** A line for a shell, which would otherwise fail as the unknown program "ls | wc". */
function checkCommand(command: string): void {
  if (command === '') throw invalid('command', 'must not be empty')
  checkText('command', command)
  const isPath = command.startsWith('/') || command.startsWith('./')
  if (/[|&;<>`$\n]/.test(command) || (!isPath && /\s/.test(command)))
    throw new Refusal('command_is_shell', { command: JSON.stringify(command.slice(0, 200)) })
}

function checkArguments(args: readonly string[]): void {
  if (args.length > argumentsMax) throw invalid('args', `has more than ${argumentsMax} entries`)
  let totalBytes = 0
  for (const argument of args) {
    checkText('args', argument)
    totalBytes += Buffer.byteLength(argument)
  }
  if (totalBytes > argumentsMaxBytes) throw invalid('args', `is larger than ${argumentsMaxBytes} bytes`)
}

function checkText(field: string, text: string): void {
  if (text.includes('\0')) throw invalid(field, 'contains a NUL character, which no argument can carry')
  if (!text.isWellFormed()) throw invalid(field, 'contains a lone surrogate, which is not valid Unicode')
  if (Buffer.byteLength(text) > argumentMaxBytes) throw invalid(field, `is longer than ${argumentMaxBytes} bytes`)
}

/** @throws Refusal timeout_too_long, invalid_argument. */
export function checkTimeout({ profile }: Caller, timeoutMs: number): void {
  if (timeoutMs <= 0) throw invalid('timeout', 'must be greater than 0')
  if (timeoutMs <= profile.timeoutMaxMs) return
  const limitSeconds = profile.timeoutMaxMs / 1_000
  throw new Refusal('timeout_too_long', { seconds: timeoutMs / 1_000, limitSeconds })
}

/** @throws Refusal invalid_argument. */
export function checkTerminal({ columns, rows }: TerminalSize): void {
  for (const [field, value] of [
    ['columns', columns],
    ['rows', rows],
  ] as const) {
    if (!Number.isInteger(value) || value < 1 || value > terminalMax)
      throw invalid(field, `must be a whole number from 1 to ${terminalMax}`)
  }
}

/** Returns the number of a signal by its name, with or without SIG, or number. @throws Refusal invalid_argument. */
export function toSignal(signal: string | number): number {
  const { signals } = constants
  const name = String(signal).toUpperCase()
  const number = /^\d{1,2}$/.test(name)
    ? Number(name)
    : (signals[(name.startsWith('SIG') ? name : `SIG${name}`) as keyof typeof signals] as number | undefined)
  if (number !== undefined && number >= 1 && number <= 64) return number
  throw invalid('signal', 'must be a signal such as TERM, KILL or INT, or its number from 1 to 64')
}

/** For requests about a process that can end meanwhile. */
export function ignoreRefusal(error: unknown): void {
  if (!(error instanceof Refusal)) throw error
}
