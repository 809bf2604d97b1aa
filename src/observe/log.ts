import { type DestinationStream, type Logger, pino } from 'pino'
import pretty from 'pino-pretty'
import { newId } from '../base/ids.ts'
import { redact, redactLine } from './redact.ts'

export const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof logLevels)[number]
export const logFormats = ['auto', 'json', 'pretty'] as const
export type LogFormat = (typeof logFormats)[number]

/** Every room is handed one; `log.child({ request_id })` binds what all further lines carry. */
export type Log = Logger

/** Where lines go: standard error of the process, as a rule. */
export interface LogDestination {
  write(line: string): unknown
  isTTY?: boolean | undefined
}

export interface LogOptions {
  level: LogLevel
  /** `auto`: pretty on a terminal, one JSON object per line otherwise. */
  format: LogFormat
  destination: LogDestination
  /** Carried by every line, for example `{ process: 'front' }`. */
  bindings?: Record<string, string | number>
}

/** Makes a log that nothing on the redaction list can pass (`redact.ts`), by field, by message or by error. */
export function createLog({ level, format, destination, bindings = {} }: LogOptions): Log {
  const isPretty = format === 'pretty' || (format === 'auto' && destination.isTTY === true)
  const lines: DestinationStream = { write: (line) => void destination.write(line) }
  return pino(
    {
      level,
      base: bindings,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: redact },
      // The one place that every line passes, with its bindings, whoever made the child that wrote it.
      hooks: { streamWrite: redactLine },
    },
    isPretty ? prettyLines(destination, lines) : lines,
  )
}

/** Human-readable lines, written at once so that the last ones before an end are not lost. */
function prettyLines(destination: LogDestination, lines: DestinationStream): DestinationStream {
  const format = pretty.prettyFactory({
    colorize: destination.isTTY === true,
    ignore: 'pid,hostname',
    translateTime: 'SYS:HH:MM:ss.l',
  })
  return { write: (line) => lines.write(format(line) ?? line) }
}

/**
 * Records what is nobody's fault but ours: one line, with the error and its causes.
 * @returns the id that the caller receives in place of the error.
 */
export function fault(error: unknown, log: Log): string {
  const faultId = newId('fault')
  log.error({ fault_id: faultId, err: error }, 'fault')
  return faultId
}
