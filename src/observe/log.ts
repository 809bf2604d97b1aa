import { type DestinationStream, type Logger, pino } from 'pino'
import pretty from 'pino-pretty'
import { newId } from '../base/ids.ts'
import { LogLines } from './log-lines.ts'
import { redact, redactLine } from './redact.ts'

export const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof logLevels)[number]
export const logFormats = ['auto', 'json', 'pretty'] as const
export type LogFormat = (typeof logFormats)[number]

/** The log that each module receives; `log.child({ request_id })` adds fields to all further lines. */
export type Log = Logger

/** Destination of the lines, usually standard error of the process. */
export interface LogDestination {
  write(line: string): unknown
  isTTY?: boolean | undefined
}

export interface LogOptions {
  level: LogLevel
  /** `auto`: pretty on a terminal, one JSON object per line otherwise. */
  format: LogFormat
  destination: LogDestination
  /** Fields of every line, for example `{ process: 'front' }`. */
  bindings?: Record<string, string | number>
}

/** Creates a log that redacts secrets (`redact.ts`) in fields, messages and errors. */
export function createLog({ level, format, destination, bindings = {} }: LogOptions): Log {
  const isPretty = format === 'pretty' || (format === 'auto' && destination.isTTY === true)
  const lines: DestinationStream = { write: (line) => void destination.write(line) }
  const kept = new LogLines()
  const log = pino(
    {
      level,
      base: bindings,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: redact },
      // Every line passes through this hook with its bindings, including lines of child logs.
      hooks: {
        streamWrite: (line) => {
          const redacted = redactLine(line)
          kept.add(redacted)
          return redacted
        },
      },
    },
    isPretty ? prettyLines(destination, lines) : lines,
  )
  linesOfLogs.set(log, kept)
  return log
}

const linesOfLogs = new WeakMap<Log, LogLines>()

/** Returns the latest lines of a log. @param log as `createLog` returned it, not a child. */
export const linesOf = (log: Log): LogLines => linesOfLogs.get(log) ?? new LogLines()

/** Formats readable lines and writes them synchronously, so that the last lines before an exit are not lost. */
function prettyLines(destination: LogDestination, lines: DestinationStream): DestinationStream {
  const format = pretty.prettyFactory({
    colorize: destination.isTTY === true,
    ignore: 'pid,hostname',
    translateTime: 'SYS:HH:MM:ss.l',
  })
  return { write: (line) => lines.write(format(line) ?? line) }
}

/**
 * Logs an internal error in one line, with its causes.
 * @returns the ID that the caller receives instead of the error.
 */
export function fault(error: unknown, log: Log): string {
  const faultId = newId('fault')
  log.error({ fault_id: faultId, err: error }, 'fault')
  return faultId
}
