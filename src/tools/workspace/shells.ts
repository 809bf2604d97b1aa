import Type, { type Static } from 'typebox'
import { workspaceTool } from './workspace-tool.ts'

const command = Type.String({ minLength: 1, maxLength: 100_000, description: 'Command line for Bash.' })
const description = Type.Optional(
  Type.String({ maxLength: 1024, description: 'What the command does, in a few words.' }),
)
const shellId = Type.String({ minLength: 1, maxLength: 128, description: 'From Bash or watch_process.' })
const maxTimeoutSeconds = 600

const BashReply = Type.Object({
  text: Type.Optional(Type.String()),
  exit: Type.Optional(Type.Integer()),
  timed_out: Type.Optional(Type.Boolean()),
  note: Type.Optional(Type.String()),
  shell_id: Type.Optional(Type.String()),
})

export const bashTool = workspaceTool({
  name: 'Bash',
  title: 'Run a command',
  readOnly: false,
  description:
    'Run a command in the workspace. The working directory and exported variables are kept for the next call. Standard input is empty. Start servers and other long commands with run_in_background.',
  input: {
    command,
    description,
    timeout: Type.Optional(
      Type.Integer({ minimum: 1, maximum: maxTimeoutSeconds, description: 'Time limit in seconds. Default: 120.' }),
    ),
    run_in_background: Type.Optional(
      Type.Boolean({ description: 'Return a shell_id at once, for BashOutput and KillShell.' }),
    ),
  },
  aliases: { timeout: toSeconds },
  reply: BashReply,
  call: ({ command, timeout = 120, run_in_background }) =>
    run_in_background
      ? { op: 'start', args: { command } }
      : { op: 'bash', args: { command, timeout }, timeoutMs: (timeout + 10) * 1000 },
  show: ({ text = '', exit = 0, timed_out, note = '', shell_id }, { command, timeout = 120 }) => {
    if (shell_id !== undefined) return { text: `shell_id: ${shell_id}\nstarted in background: ${command}` }
    const ending = timed_out ? [`bash: timed out after ${timeout}s`, 'exit: 124'] : exit === 0 ? [] : [`exit: ${exit}`]
    const output = text !== '' && !text.endsWith('\n') && ending.length > 0 ? `${text}\n` : text
    return { text: `${output}${note}${ending.join('\n')}`, isError: exit !== 0 }
  },
})

/** Some clients send milliseconds. */
function toSeconds(value: unknown): unknown {
  return typeof value === 'number' && value > maxTimeoutSeconds && value % 1000 === 0
    ? Math.min(value / 1000, maxTimeoutSeconds)
    : value
}

const Stream = Type.Object({ text: Type.String(), cursor: Type.Integer(), lost: Type.Integer(), bytes: Type.Integer() })

export const bashOutputTool = workspaceTool({
  name: 'BashOutput',
  title: 'Read the output of a background shell',
  readOnly: true,
  description:
    'Return the output of a background shell: all that is kept, at most 1 MiB per stream, or with the cursor of an earlier call what came after it.',
  input: {
    shell_id: shellId,
    cursor: Type.Optional(
      Type.String({
        pattern: '^[0-9]{1,15}:[0-9]{1,15}$',
        description: 'From an earlier call: only newer output is returned.',
      }),
    ),
    filter: Type.Optional(
      Type.String({ minLength: 1, maxLength: 4096, description: 'Only lines that match this regular expression.' }),
    ),
  },
  reply: Type.Object({
    command: Type.String(),
    started: Type.Number(),
    streams: Type.Array(Stream, { minItems: 2, maxItems: 2 }),
    exit: Type.Union([Type.Null(), Type.Integer()]),
  }),
  call: ({ shell_id, cursor = '0:0', filter }) => ({
    op: 'output',
    args: { shell_id, cursors: cursor.split(':').map(Number), ...(filter !== undefined && { filter }) },
  }),
  show: ({ command, started, streams, exit }, { shell_id, cursor, filter }, redact) => {
    const [stdout, stderr] = streams as [Static<typeof Stream>, Static<typeof Stream>]
    const part = (name: string, { text, bytes, lost }: Static<typeof Stream>) => {
      // With a cursor, a secret can be cut in two by two calls.
      const shown =
        cursor === undefined || filter !== undefined ? text : redact(`${shell_id} ${name}`, text, exit !== null)
      return `--- ${name} (${bytes} bytes)${lost > 0 ? ' [TRUNCATED]' : ''} ---\n${shown}`
    }
    const next = `${stdout.cursor}:${stderr.cursor}`
    return {
      text: [
        `command: ${command}`,
        `status: ${exit === null ? 'running' : `completed (exit ${exit})`}`,
        `started: ${toIso(started)}`,
        `cursor: ${next}`,
        part('stdout', stdout),
        part('stderr', stderr),
      ].join('\n'),
    }
  },
})

function toIso(seconds: number): string {
  const date = new Date(seconds * 1000)
  return Number.isNaN(date.getTime()) ? 'unknown' : date.toISOString()
}

export const killShellTool = workspaceTool({
  name: 'KillShell',
  title: 'Stop a background shell',
  readOnly: false,
  description: 'Kill a background shell with all of its processes, and forget its output.',
  input: { shell_id: shellId },
  reply: Type.Object({ killed: Type.String() }),
  call: (input) => ({ op: 'kill', args: input }),
  show: ({ killed }) => ({ text: `killed: ${killed}` }),
})

const defaultPatterns = ['^Error:', '^Fatal:', '^panic:', '\\buncaught\\b', 'UnhandledPromiseRejection']

export const watchProcessTool = workspaceTool({
  name: 'watch_process',
  title: 'Start a command and watch it',
  readOnly: false,
  description:
    'Start a command in the background and record events: its start and exit, lines that match an error pattern, and times without output. Read them with watch_process_events, and the output with BashOutput.',
  input: {
    command,
    description,
    error_patterns: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 1024 }), {
        maxItems: 32,
        description: `Regular expressions; [] for none. Default: ${defaultPatterns.join(', ')}`,
      }),
    ),
    idle_timeout_seconds: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 3600,
        description: 'Report when there is no output for this time; 0: never.',
      }),
    ),
  },
  reply: Type.Object({ shell_id: Type.String() }),
  call: ({ command, error_patterns = defaultPatterns, idle_timeout_seconds = 0 }) => ({
    op: 'start',
    args: { command, watch: error_patterns, idle_timeout: idle_timeout_seconds },
  }),
  show: ({ shell_id }, { command }) => ({ text: `shell_id: ${shell_id}\nwatching: ${command}` }),
})

const Event = Type.Object({
  id: Type.Integer(),
  kind: Type.String(),
  time: Type.Number(),
  line: Type.Optional(Type.String()),
  exit: Type.Optional(Type.Integer()),
  seconds: Type.Optional(Type.Number()),
  command: Type.Optional(Type.String()),
})

export const watchProcessEventsTool = workspaceTool({
  name: 'watch_process_events',
  title: 'Read the events of a watched command',
  readOnly: true,
  description: 'Return the events of a command that watch_process started: started, error, idle_timeout and exited.',
  input: {
    shell_id: shellId,
    since_event_id: Type.Optional(
      Type.Integer({ minimum: 0, maximum: 1_000_000_000_000, description: 'Only newer events.' }),
    ),
  },
  reply: Type.Object({ events: Type.Array(Event), dropped: Type.Integer() }),
  call: (input) => ({ op: 'events', args: input }),
  show: ({ events, dropped }) => {
    const lines = events.map(
      ({ id, kind, time, line, exit, seconds }) =>
        `${id} ${toIso(time)} ${kind}${line === undefined ? '' : `: ${line}`}${exit === undefined ? '' : ` (exit ${exit})`}${seconds === undefined ? '' : ` (${seconds}s)`}`,
    )
    if (dropped > 0) lines.unshift(`(${dropped} older events were dropped)`)
    return { text: lines.join('\n') || 'no events', structured: { events } }
  },
})
