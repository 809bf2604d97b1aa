import Type from 'typebox'
import { languages } from '../../../base/run.ts'
import type { CallEnding, CallEvent, Context, Display } from '../../../core/sandboxes/kernels/calls.ts'
import { kernelLanguages } from '../../../core/sandboxes/kernels/calls.ts'
import { rewindMax } from '../../../core/sandboxes/kernels/kernels.ts'
import { ErrorBody, named, oneOf, orNull, union } from '../../schemas.ts'
import { outputFields } from './process-schemas.ts'
import { environment, ProcessEndingSchema, processEndingOnTheWire } from './schemas.ts'

export const CodeBody = named(
  'SandboxCodeRequest',
  Type.Object(
    {
      language: oneOf(languages),
      code: Type.String({ description: 'Source code.' }),
      context: Type.Optional(
        Type.String({ description: 'ID of a context; the default one of the language if absent.' }),
      ),
      stdin: Type.Optional(Type.String({ description: 'Standard input of this call; at its end by default.' })),
      env_vars: environment,
      timeout: Type.Optional(
        Type.Number({ exclusiveMinimum: 0, description: 'Seconds after which the code is interrupted.' }),
      ),
    },
    { additionalProperties: false },
  ),
)

/** How the code of a call ended, one object per kind. */
const CallEndingSchema = union('SandboxCodeEnding', 'kind', 'How the code ended.', [
  Type.Object(
    {
      kind: oneOf(['completed']),
      exit_code: Type.Optional(Type.Integer({ description: 'Of the last command, for bash.' })),
    },
    { title: 'CodeCompleted' },
  ),
  Type.Object(
    { kind: oneOf(['raised']), name: Type.String(), message: Type.String(), traceback: Type.String() },
    { title: 'CodeRaised', description: 'An exception that the code did not handle.' },
  ),
  Type.Object({ kind: oneOf(['exited']), code: Type.Integer() }, { title: 'CodeExited' }),
  Type.Object({ kind: oneOf(['timed_out']), limit_ms: Type.Number() }, { title: 'CodeTimedOut' }),
  Type.Object({ kind: oneOf(['interrupted']) }, { title: 'CodeInterrupted' }),
  Type.Object(
    { kind: oneOf(['kernel_ended']), ending: ProcessEndingSchema },
    { title: 'CodeKernelEnded', description: 'The interpreter ended during the call.' },
  ),
])

const displayed = {
  is_result: Type.Boolean({
    description: 'Whether it is the value of the last expression; otherwise code displayed it.',
  }),
  data: Type.Unsafe<Record<string, string>>({
    type: 'object',
    additionalProperties: { type: 'string' },
    description:
      'Its representations by media type: text as it is, application/json as JSON text, images and other binary types as base64.',
  }),
}

const ended = {
  ending: CallEndingSchema,
  state: oneOf(['kept', 'lost', 'restored'], {
    description:
      'The variables after the call: kept, lost with their interpreter, or those before the call, from a frozen copy.',
  }),
  lost_before: orNull(Type.String(), { description: 'Why the variables of earlier calls were lost before this call.' }),
  count: Type.Integer({ minimum: 0, description: 'Number of calls of the interpreter, with this one.' }),
  duration_ms: Type.Integer({ minimum: 0 }),
}

export const CodeResult = named(
  'SandboxCodeResult',
  Type.Object({ ...ended, ...outputFields, displays: Type.Array(Type.Object(displayed)) }),
)

export const CodeLine = union('SandboxCodeLine', 'type', 'One line.', [
  Type.Object({ type: oneOf(['stdout', 'stderr']), data: Type.String() }, { title: 'CodeOutputLine' }),
  Type.Object(
    { type: oneOf(['gap']), stream: oneOf(['stdout', 'stderr']), bytes: Type.Integer() },
    { title: 'CodeGapLine', description: 'Output that was dropped because it arrived faster than it was read.' },
  ),
  Type.Object({ type: oneOf(['display']), ...displayed }, { title: 'CodeDisplayLine' }),
  Type.Object({ type: oneOf(['ended']), ...ended }, { title: 'CodeEndedLine' }),
  Type.Object({ type: oneOf(['heartbeat']) }, { title: 'CodeHeartbeatLine' }),
  Type.Object({ type: oneOf(['error']), ...ErrorBody.properties }, { title: 'CodeErrorLine' }),
])

export const displayOnTheWire = ({ data, isResult }: { data: Display; isResult: boolean }) => ({
  is_result: isResult,
  data: Object.fromEntries(
    Object.entries(data).map(([type, value]) => [
      type,
      typeof value === 'string' ? value : Buffer.from(value).toString('base64'),
    ]),
  ),
})

export const endedOnTheWire = (event: Extract<CallEvent, { kind: 'ended' }>) => ({
  ending: endingOnTheWire(event.ending),
  state: event.state,
  lost_before: event.lostBefore ?? null,
  count: event.count,
  duration_ms: Math.round(event.durationMs),
})

function endingOnTheWire(ending: CallEnding): object {
  switch (ending.kind) {
    case 'completed':
      return { kind: ending.kind, ...(ending.exitCode !== undefined && { exit_code: ending.exitCode }) }
    case 'timed_out':
      return { kind: ending.kind, limit_ms: ending.limitMs }
    case 'kernel_ended':
      return { kind: ending.kind, ending: processEndingOnTheWire(ending.ending) }
    case 'raised':
    case 'exited':
    case 'interrupted':
      return ending
  }
}

export const ContextBody = named(
  'CreateSandboxContextRequest',
  Type.Object(
    {
      language: oneOf(kernelLanguages),
      cwd: Type.Optional(
        Type.String({ description: 'Absolute path; the working directory of the sandbox by default.' }),
      ),
      rewind: Type.Optional(
        Type.Integer({
          minimum: 0,
          maximum: rewindMax,
          description:
            'Number of calls that can be undone, for Python; 0 by default. Each costs a fork of the interpreter.',
        }),
      ),
      rewind_files: Type.Optional(
        Type.Boolean({
          description:
            'Whether the files of the sandbox can be put back with the variables. Each call then copies its disk.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
)

export const ContextSchema = named(
  'SandboxContext',
  Type.Object({
    id: Type.String(),
    language: oneOf(kernelLanguages),
    cwd: orNull(Type.String()),
    state: oneOf(['idle', 'busy', 'not_started']),
    rewindable: Type.Integer({
      minimum: 0,
      description: 'Number of calls that can be undone; fewer where memory or processes are short.',
    }),
    rewind_files: Type.Boolean({ description: 'Whether files can be put back as well.' }),
  }),
)

export const contextOnTheWire = ({
  cwd = null,
  keepsFiles,
  ...context
}: Omit<Context, 'cwd'> & { cwd?: string | null }) => ({ ...context, cwd, rewind_files: keepsFiles })

export const ContextList = named('SandboxContextList', Type.Object({ data: Type.Array(ContextSchema) }))

export const RewindBody = named(
  'RewindSandboxContextRequest',
  Type.Object(
    {
      calls: Type.Integer({ minimum: 1, maximum: 1_000, description: 'Number of calls to undo.' }),
      files: Type.Optional(Type.Boolean({ description: 'Whether files go back as well.' })),
    },
    { additionalProperties: false },
  ),
)

export const RewoundSchema = named(
  'RewoundSandboxContext',
  Type.Object({
    calls: Type.Integer({ description: 'Number of calls that were undone.' }),
    not_rewound: Type.Array(Type.String(), {
      description: 'What the code had started or changed that could not be undone.',
    }),
    files: orNull(
      Type.Object(
        {
          restored: Type.Integer({ description: 'Files and directories that were put back.' }),
          removed: Type.Integer({ description: 'Files and directories that did not exist before the calls.' }),
        },
        { description: 'The files that changed, if files were to go back.' },
      ),
    ),
  }),
)
