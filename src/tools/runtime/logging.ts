import Type from 'typebox'
import { assess } from '../../core/runtime/health.ts'
import type { Runtime } from '../../core/runtime/runtime.ts'
import { logLevels } from '../../observe/log.ts'
import { type LogEntry, type LogQuery, logLinesMax } from '../../observe/log-lines.ts'
import { processArgument } from './node.ts'
import { limitOf, type RuntimeTool, runtimeTool } from './runtime-tool.ts'

const loggers = ['front', 'runner'] as const

/** Returns log entries of the processes, newest first. */
async function entriesOf(
  runtime: Runtime,
  process: (typeof loggers)[number] | undefined,
  query: LogQuery & { limit: number },
): Promise<LogEntry[]> {
  const reports = await runtime.inspect('log', process, query)
  const entries = Object.values(reports).flatMap((report) => (report as { entries?: LogEntry[] }).entries ?? [])
  return entries.sort((a, b) => (a.time < b.time ? 1 : -1)).slice(0, query.limit)
}

const level = Type.Optional(Type.Enum(logLevels, { description: 'Entries of this level and above.' }))

/** Tools for the logs of both processes. Entries are bounded, and secrets are hidden before they are kept. */
export const loggingTools: readonly RuntimeTool[] = [
  runtimeTool({
    name: 'logging_get_info',
    title: 'Logs',
    description: 'Level, number of kept entries and number of errors of the log of each process.',
    aliases: ['logging_get_config', 'logging_get_loggers'],
    run: async (runtime) => ({ kept_max: logLinesMax, loggers: await runtime.inspect('log_info', undefined) }),
  }),
  runtimeTool({
    name: 'logging_get_logger',
    title: 'One log',
    description: 'Level, number of kept entries and number of errors of the log of one process.',
    input: { loggerName: Type.Unsafe<(typeof loggers)[number]>({ type: 'string', enum: [...loggers] }) },
    run: (runtime, { loggerName }) => runtime.inspect('log_info', loggerName),
  }),
  runtimeTool({
    name: 'logging_get_appenders',
    title: 'Destinations of the logs',
    description: 'Where the logs are written, and in which format.',
    run: ({ facts }) => ({
      destination: 'standard error of the service',
      format: facts.settings.find(({ name }) => name === 'log_format')?.value ?? 'auto',
    }),
  }),
  runtimeTool({
    name: 'logging_read_entries',
    title: 'Latest log entries',
    description: 'The latest entries of the logs, newest first. Secrets are hidden.',
    input: { ...processArgument, level, limit: limitOf(50, logLinesMax) },
    run: async (runtime, { process, level: least, limit = 50 }) => ({
      entries: await entriesOf(runtime, process, { limit, level: least }),
    }),
  }),
  runtimeTool({
    name: 'logging_get_last_error',
    title: 'Latest error',
    description: 'The latest error in the logs of both processes, with its causes.',
    run: async (runtime) => ({ error: (await entriesOf(runtime, undefined, { limit: 1, level: 'error' }))[0] ?? null }),
  }),
  runtimeTool({
    name: 'logging_search_entries',
    title: 'Search the logs',
    description: 'Entries that contain a text, such as a trace_id or a fault ID, newest first.',
    input: {
      keyword: Type.String({ minLength: 1, maxLength: 256, description: 'A part of the entry, in any case.' }),
      ...processArgument,
      level,
      limit: limitOf(50, logLinesMax),
    },
    run: async (runtime, { keyword, process, level: least, limit = 50 }) => ({
      entries: await entriesOf(runtime, process, { limit, level: least, keyword }),
    }),
  }),
  runtimeTool({
    name: 'logging_get_health',
    title: 'Errors in the logs',
    description: 'Whether errors were logged in the last ten minutes.',
    run: async (runtime) => assess('logging', await runtime.figures()),
  }),
  runtimeTool({
    name: 'logging_log_message',
    title: 'Write a marker to the log',
    description: 'Writes a message to the log of the front, to find the place of an incident again.',
    effect: 'write',
    input: {
      message: Type.String({ minLength: 1, maxLength: 500, description: 'The message. Secrets in it are hidden.' }),
      level: Type.Optional(Type.Enum(['info', 'warn', 'error'], { description: 'Level; info by default.' })),
    },
    run: ({ log }, { message, level: at = 'info' }) => {
      log[at]({ marker: message }, 'marker of an administrator')
      return { written: log.isLevelEnabled(at) }
    },
  }),
]
