import Type from 'typebox'
import { failureReasons, fileKinds, languages, type Ending as RunEnding } from '../../base/run.ts'
import { subjectLimit } from '../../core/audit/subjects.ts'
import { idempotencyKeyLimit } from '../../core/runs/idempotency.ts'
import { stdinLimitBytes, timeoutLimitSeconds } from '../../core/runs/request.ts'

type EndingKind = RunEnding['kind']

/** Plain string enums, as models and every client's validator read them. */
const oneOf = <const Values extends readonly string[]>(values: Values, options: object = {}) =>
  Type.Unsafe<Values[number]>({ type: 'string', enum: [...values], ...options })

/** In two branches: some clients map schemas onto a dialect that has one type in each place. */
const nullable = (type: 'integer' | 'string', options: object = {}) =>
  Type.Unsafe<number | string | null>({ anyOf: [{ type }, { type: 'null' }], ...options })

export const SandboxExecuteInput = Type.Object(
  {
    code: Type.String({ description: 'Code to execute' }),
    language: Type.Optional(
      oneOf(languages, {
        description: "Programming language. Defaults to the sandbox's configured language if omitted.",
      }),
    ),
    timeout: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: timeoutLimitSeconds,
        description: 'Execution timeout in seconds. Defaults to sandbox configuration.',
      }),
    ),
    thread_id: Type.Optional(
      Type.String({
        description:
          'Persistent thread ID. Files written to the home directory persist across calls with the same thread_id. Only one call at a time can use it. 1 to 128 letters, digits, ".", "_" and "-", the first a letter or digit.',
      }),
    ),
    metadata: Type.Optional(
      Type.Unsafe<Record<string, unknown>>({
        type: 'object',
        description: 'Arbitrary key-value metadata attached to the execution record. At most 16 KiB as JSON.',
      }),
    ),
    env_vars: Type.Optional(
      Type.Unsafe<Record<string, string>>({
        type: 'object',
        additionalProperties: { type: 'string' },
        description:
          'Environment variables injected into the sandbox. Keys must be uppercase letters, digits, and underscores, starting with a letter.',
      }),
    ),
    subject: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: subjectLimit,
        description:
          'A person or case that this call is for, in your own words: everything of one subject can be exported and erased together. A thread belongs to the subject of its first call.',
      }),
    ),
    idempotency_key: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: idempotencyKeyLimit,
        description:
          'A word of your choice that makes repeating this very call safe: it is executed at most once, and a repeat within a day is answered with what the first one did, or joins it while it goes on.',
      }),
    ),
    stdin: Type.Optional(
      Type.String({
        description: `Standard input of the program, at most ${stdinLimitBytes} bytes. Empty if omitted.`,
      }),
    ),
    timings: Type.Optional(
      Type.Boolean({ description: 'Tell where the time went, phase by phase, in timings of the result.' }),
    ),
  },
  { additionalProperties: false },
)

/** A kind that is missing here, or is none, does not compile. */
const endingKinds = Object.keys({
  exited: true,
  signaled: true,
  timed_out: true,
  out_of_memory: true,
  output_limit: true,
  disk_quota: true,
  cancelled: true,
  shutdown: true,
  failed: true,
} satisfies Record<EndingKind, true>) as EndingKind[]

const count = (description?: string) => Type.Integer({ minimum: 0, ...(description && { description }) })
const measure = (description?: string) => Type.Number({ minimum: 0, ...(description && { description }) })

const Ending = Type.Object(
  {
    kind: oneOf(endingKinds),
    code: Type.Optional(Type.Integer({ description: 'Exit code; with `exited`.' })),
    signal: Type.Optional(Type.String({ description: 'Without SIG; with `signaled`.' })),
    limit_ms: Type.Optional(measure('With `timed_out`.')),
    held_as: Type.Optional(
      Type.String({ description: 'With `out_of_memory`: `socket_buffers` where those held what is beyond the limit.' }),
    ),
    limit_bytes: Type.Optional(count('With `out_of_memory`, `output_limit` and `disk_quota`.')),
    reason: Type.Optional(oneOf(failureReasons, { description: 'With `failed`.' })),
  },
  { description: 'How the run ended; absent while it goes on.' },
)

/** What there is of a run whether it goes on or not. */
const anyway = {
  status: oneOf(['running', 'ended'], { description: 'A run that is answered early goes on by itself.' }),
  ending: Type.Optional(Ending),
  exit_code: nullable('integer', { description: 'null unless the program exited by itself.' }),
  signal: nullable('string', { description: 'The signal that ended the program, without SIG; null if none did.' }),
  stdout: Type.String({ description: 'Head and tail; where bytes are left out, a line says how many.' }),
  stderr: Type.String({ description: 'As stdout.' }),
  trace_id: Type.String({ description: 'Names this run.' }),
  cursor: Type.Optional(Type.String({ description: 'Give it back to be told only what comes after.' })),
}

/** What was measured; absent while the run goes on, and where nothing could be measured. */
const measured = {
  stdout_bytes: Type.Optional(count('Written in all, kept or not.')),
  stderr_bytes: Type.Optional(count('Written in all, kept or not.')),
  stdout_truncated: Type.Optional(Type.Boolean()),
  stderr_truncated: Type.Optional(Type.Boolean()),
  duration_ms: Type.Optional(measure('Wall time of the program itself.')),
  cpu_time_ms: Type.Optional(measure('CPU time of all its processes.')),
  memory_peak_bytes: Type.Optional(count('Page cache and temporary files included.')),
  files: Type.Optional(
    Type.Array(
      Type.Object({
        path: Type.String({ description: 'Relative to the home directory.' }),
        size_bytes: count(),
        sha256: nullable('string', { description: 'null where it is too much to read.' }),
        kind: oneOf(fileKinds, { description: 'By what it holds.' }),
        mime_type: Type.String(),
      }),
      { description: 'Created or changed in the thread by this run; absent without a thread.' },
    ),
  ),
  files_truncated: Type.Optional(
    Type.Boolean({ description: 'More files have changed, or may have, than are listed.' }),
  ),
  images_shown: Type.Optional(count('Images that come with this answer; absent where there were none.')),
  images_dropped: Type.Optional(count('Too many or too large to come with it.')),
  images_ignored: Type.Optional(Type.Boolean({ description: 'Something was shown that is no image.' })),
  oom_kills: Type.Optional(count('Processes that were killed for memory, also when the program lived on.')),
  limits: Type.Optional(
    Type.Object({
      timeout_ms: measure(),
      memory_bytes: count(),
      cpus: measure(),
      pids: count(),
      open_files: count(),
      file_bytes: count(),
      tmp_bytes: count(),
      home_bytes: count(),
      output_soft_bytes: count('Kept per stream.'),
      output_hard_bytes: count('Per stream; more ends the run.'),
    }),
  ),
  timings: Type.Optional(
    Type.Object({
      queue_ms: measure('Waiting for a turn.'),
      slot_ms: measure('Getting a sandbox.'),
      jail_ms: measure('Preparing it for this run.'),
      host_ms: measure('Waiting for an interpreter that was being started ahead.'),
      run_ms: measure('Running.'),
      drain_ms: measure('Counting what was used and which files have changed.'),
      record_ms: Type.Optional(measure('Writing how it ended; absent where that is told later.')),
    }),
  ),
}

export const SandboxExecuteOutput = Type.Object(
  { ...anyway, ...measured },
  { description: 'What a run answered and used.' },
)

export const ExecutionOutput = Type.Object(
  { ...anyway, created_at: Type.String({ description: 'ISO 8601, UTC.' }), ...measured },
  { description: 'What a run has done so far.' },
)
