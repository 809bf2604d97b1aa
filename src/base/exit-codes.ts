/** One exit code for each ending of a run, of a command and of a process, the same in all interfaces. */
import type { Ending } from './run.ts'
import type { ProcessEnding } from './sandbox.ts'

/** An ending, with what its exit code depends on. */
type WithCode<Kind extends (Ending | ProcessEnding)['kind']> =
  | { kind: 'exited'; code: number }
  | { kind: 'signaled'; signal: string }
  | { kind: Exclude<Kind, 'exited' | 'signaled'> }

/** Describes the codes of a run that did not exit by itself. */
export const exitCodesInWords =
  '124 timed out, 137 killed at its limit of memory, output or disk, 130 cancelled, 143 server stopped, 128 + N ended by signal N; null while it is running, or if the server could not run it.'

/** Returns the exit code that a shell, and timeout(1), would show; `null` if the server could not run the program. */
export function exitCodeOf(ending: WithCode<ProcessEnding['kind']>): number
export function exitCodeOf(ending: WithCode<(Ending | ProcessEnding)['kind']>): number | null
export function exitCodeOf(ending: WithCode<(Ending | ProcessEnding)['kind']>): number | null {
  switch (ending.kind) {
    case 'exited':
      return ending.code
    case 'signaled':
      return 128 + signalNumber(ending.signal)
    case 'timed_out':
      return 124
    case 'not_started':
      return 127
    case 'out_of_memory':
    case 'output_limit':
    case 'disk_quota':
    case 'sandbox_ended':
      return 137
    case 'cancelled':
      return 130
    case 'shutdown':
      return 143
    case 'failed':
      return null
  }
}

/** Linux numbers, the same on x86-64 and arm64: https://man7.org/linux/man-pages/man7/signal.7.html */
const signalNumbers: ReadonlyMap<string, number> = new Map(
  [
    ...['HUP', 'INT', 'QUIT', 'ILL', 'TRAP', 'ABRT', 'BUS', 'FPE', 'KILL', 'USR1', 'SEGV', 'USR2', 'PIPE', 'ALRM'],
    ...['TERM', 'STKFLT', 'CHLD', 'CONT', 'STOP', 'TSTP', 'TTIN', 'TTOU', 'URG', 'XCPU', 'XFSZ', 'VTALRM', 'PROF'],
    ...['WINCH', 'IO', 'PWR', 'SYS'],
  ].map((name, index) => [name, index + 1]),
)

function signalNumber(signal: string): number {
  return signalNumbers.get(signal) ?? (/^\d{1,2}$/.test(signal) ? Number(signal) : 0)
}
