import Type from 'typebox'
import { ErrorBody, named, oneOf, orNull, union } from '../../schemas.ts'
import { environment, Process, ProcessEndingSchema } from './schemas.ts'

const command = {
  command: Type.String({ description: 'Program to execute, without a shell.' }),
  args: Type.Optional(Type.Array(Type.String(), { description: 'Arguments, passed exactly as they are.' })),
  env_vars: environment,
  cwd: Type.Optional(Type.String({ description: 'Absolute path; the working directory of the sandbox by default.' })),
  user: Type.Optional(Type.String({ description: 'The user of the sandbox by default.' })),
  timeout: Type.Optional(Type.Number({ exclusiveMinimum: 0, description: 'Seconds.' })),
}

export const CommandBody = named(
  'SandboxCommandRequest',
  Type.Object(
    { ...command, stdin: Type.Optional(Type.String({ description: 'Standard input; empty by default.' })) },
    { additionalProperties: false },
  ),
)

const size = {
  columns: Type.Integer({ minimum: 1, maximum: 1_000 }),
  rows: Type.Integer({ minimum: 1, maximum: 1_000 }),
}

export const ProcessBody = named(
  'SandboxProcessRequest',
  Type.Object(
    {
      ...command,
      stdin: Type.Optional(Type.Boolean({ description: 'Whether standard input can be written.' })),
      terminal: Type.Optional(
        Type.Object(size, { additionalProperties: false, description: 'Run it in a pseudo-terminal of this size.' }),
      ),
    },
    { additionalProperties: false },
  ),
)

export const outputFields = {
  stdout: Type.String(),
  stderr: Type.String(),
  output: Type.Array(Type.Object({ stream: oneOf(['stdout', 'stderr']), text: Type.String() }), {
    description: 'The output of both streams in the order in which it arrived.',
  }),
  omitted_bytes: Type.Integer({ minimum: 0, description: 'Output between the beginning and the end that is missing.' }),
}

export const CommandResult = named(
  'SandboxCommandResult',
  Type.Object({
    exit_code: Type.Integer({
      description: '124 timed out, 127 not started, 137 out of memory or the sandbox ended, 128 + N ended by signal N.',
    }),
    success: Type.Boolean({ description: 'Whether the exit code is 0.' }),
    ending: ProcessEndingSchema,
    ...outputFields,
    output_limit_bytes: Type.Optional(
      Type.Integer({ description: 'The limit at which it was killed for its output.' }),
    ),
    duration_ms: Type.Integer(),
  }),
)

export const ProcessOutput = named(
  'SandboxProcessOutput',
  Type.Object({
    ...outputFields,
    cursor: Type.Integer({ description: 'Pass it as `after` for what follows.' }),
    ending: orNull(ProcessEndingSchema),
  }),
)

const seq = Type.Integer({ minimum: 0 })
export const ProcessLine = union('SandboxProcessLine', 'type', 'One line.', [
  Type.Object(
    {
      type: oneOf(['stdout', 'stderr']),
      seq,
      data: Type.Optional(Type.String()),
      data_base64: Type.Optional(Type.String()),
    },
    { title: 'ProcessOutputLine' },
  ),
  Type.Object(
    { type: oneOf(['gap']), seq, stream: oneOf(['stdout', 'stderr']), bytes: Type.Integer() },
    { title: 'ProcessGapLine', description: 'Output that is no longer kept.' },
  ),
  Type.Object({ type: oneOf(['ended']), seq, ending: ProcessEndingSchema }, { title: 'ProcessEndedLine' }),
  Type.Object({ type: oneOf(['heartbeat']) }, { title: 'ProcessHeartbeatLine' }),
  Type.Object({ type: oneOf(['error']), ...ErrorBody.properties }, { title: 'ProcessErrorLine' }),
])

export const StdinBody = named(
  'SandboxProcessInput',
  Type.Object(
    {
      data: Type.Optional(Type.String({ description: 'Text to write.' })),
      data_base64: Type.Optional(Type.String({ contentEncoding: 'base64', description: 'Bytes to write instead.' })),
      close: Type.Optional(Type.Boolean({ description: 'Close standard input afterwards.' })),
    },
    { additionalProperties: false },
  ),
)

export const SignalBody = named(
  'SandboxSignalRequest',
  Type.Object(
    {
      signal: Type.Unsafe<string | number>({
        anyOf: [{ type: 'string' }, { type: 'integer' }],
        description: 'TERM, KILL, INT or another signal, or its number.',
      }),
    },
    { additionalProperties: false },
  ),
)

export const ProcessList = named('SandboxProcessList', Type.Object({ data: Type.Array(Process) }))

export const SizeBody = named('SandboxTerminalSize', Type.Object(size, { additionalProperties: false }))
