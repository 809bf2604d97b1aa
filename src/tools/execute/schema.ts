import Type from 'typebox'
import { executionStatuses } from '../../base/execution-status.ts'
import { exitCodesInWords } from '../../base/exit-codes.ts'
import { networkVerdicts } from '../../base/network.ts'
import { failureReasons, fileKinds, languages, type Ending as RunEnding } from '../../base/run.ts'
import { subjectLimit } from '../../core/audit/subjects.ts'
import { idempotencyKeyLimit } from '../../core/runs/idempotency.ts'
import { stdinLimitBytes, timeoutLimitSeconds } from '../../core/runs/request.ts'
import { limitsThatRefuse } from './limits-met.ts'

type EndingKind = RunEnding['kind']

/** Builds a plain string enum, which every model and validator understands. */
const oneOf = <const Values extends readonly string[]>(values: Values, options: object = {}) =>
  Type.Unsafe<Values[number]>({ type: 'string', enum: [...values], ...options })

/** Uses two branches, since some clients convert schemas to a dialect with a single type per field. */
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
          'Person or case that this call is made for, as a free-form identifier. All data of one subject can be exported and erased together. A thread belongs to the subject of its first call.',
      }),
    ),
    idempotency_key: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: idempotencyKeyLimit,
        description:
          'Unique string that makes this call safe to retry: the code is executed at most once. A repeated call within 24 hours returns the result of the first one, or follows it while it is running.',
      }),
    ),
    stdin: Type.Optional(
      Type.String({
        description: `Standard input of the program, at most ${stdinLimitBytes} bytes. Empty if omitted.`,
      }),
    ),
    network: Type.Optional(
      Type.Boolean({ description: 'Include the connections of the program in network of the result.' }),
    ),
    timings: Type.Optional(
      Type.Boolean({ description: 'Include the duration of each phase in timings of the result.' }),
    ),
  },
  { additionalProperties: false },
)

/** A kind that is missing here, or unknown, does not compile. */
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
    disk: Type.Optional(
      Type.String({
        description: 'With `disk_quota`: `server` where the disk of the server was nearly full, not the storage.',
      }),
    ),
    limit_bytes: Type.Optional(count('With `out_of_memory`, `output_limit` and `disk_quota`.')),
    reason: Type.Optional(oneOf(failureReasons, { description: 'With `failed`.' })),
  },
  { description: 'How the run ended; absent while it is running.' },
)

/** Fields of a run at any time. */
const anyway = {
  status: oneOf(executionStatuses, {
    description: 'running: the call returned partial output and the run continues in the background. As over REST.',
  }),
  ending: Type.Optional(Ending),
  exit_code: nullable('integer', { description: exitCodesInWords }),
  signal: nullable('string', { description: 'The signal that ended the program, without SIG; null if none did.' }),
  stdout: Type.String({
    description:
      'Standard output. If it is too long, its head and tail, with a line between them that counts the omitted bytes.',
  }),
  stderr: Type.String({ description: 'Standard error, in the same form as stdout.' }),
  trace_id: Type.String({ description: 'Id of this run.' }),
  cursor: Type.Optional(Type.String({ description: 'Pass it to the next call to receive only newer output.' })),
}

/** Measurements; absent while the run is running, and when nothing could be measured. */
const measured = {
  stdout_bytes: Type.Optional(count('Total bytes written, kept or not.')),
  stderr_bytes: Type.Optional(count('Total bytes written, kept or not.')),
  stdout_truncated: Type.Optional(Type.Boolean()),
  stderr_truncated: Type.Optional(Type.Boolean()),
  duration_ms: Type.Optional(measure('Wall time of the program itself.')),
  cpu_time_ms: Type.Optional(measure('CPU time of all its processes.')),
  memory_peak_bytes: Type.Optional(count('Includes page cache and temporary files.')),
  files: Type.Optional(
    Type.Array(
      Type.Object({
        path: Type.String({ description: 'Relative to the home directory.' }),
        size_bytes: count(),
        sha256: nullable('string', { description: 'null if the file is too large to hash.' }),
        kind: oneOf(fileKinds, { description: 'Detected from the content.' }),
        mime_type: Type.String(),
      }),
      { description: 'Files that this run created or changed in its thread; absent without a thread.' },
    ),
  ),
  files_truncated: Type.Optional(Type.Boolean({ description: 'Whether the list of files may be incomplete.' })),
  output_kept: Type.Optional(Type.Boolean({ description: 'Whether the output and the images can be fetched later.' })),
  images: Type.Optional(
    Type.Array(Type.Object({ mime_type: Type.String(), url: Type.String({ description: 'Requires the API key.' }) }), {
      description:
        'Where the images of this result can be fetched later; absent if there are none, or they are not kept.',
    }),
  ),
  images_shown: Type.Optional(count('Images in this result; absent if there are none.')),
  images_dropped: Type.Optional(count('Images that were dropped because they were too many or too large.')),
  images_ignored: Type.Optional(Type.Boolean({ description: 'Whether invalid image data was ignored.' })),
  oom_kills: Type.Optional(count('Processes killed because memory ran out, even if the program itself survived.')),
  limits_met: Type.Optional(
    Type.Array(oneOf(limitsThatRefuse), {
      description: 'Limits that the program met although the run did not end for them; absent if there are none.',
    }),
  ),
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
      output_hard_bytes: count('Per stream; the run is killed when it writes more.'),
    }),
  ),
  network: Type.Optional(
    Type.Array(
      Type.Object({
        host: Type.String({ description: 'A name or an address; * for what exceeds the length of the list.' }),
        port: count(),
        verdict: oneOf(networkVerdicts),
        connections: count(),
        bytes: count('In both directions.'),
      }),
      { description: 'Connections to the outside, by destination; absent without a network.' },
    ),
  ),
  timings: Type.Optional(
    Type.Object({
      queue_ms: measure('Waiting in the queue.'),
      slot_ms: measure('Acquiring a sandbox.'),
      jail_ms: measure('Preparing it for this run.'),
      host_ms: measure('Waiting for an interpreter that was being prestarted.'),
      run_ms: measure('Running the program.'),
      drain_ms: measure('Measuring resource usage and detecting changed files.'),
      record_ms: Type.Optional(measure('Recording the ending; absent when the run is fetched later.')),
    }),
  ),
}

export const SandboxExecuteOutput = Type.Object(
  { ...anyway, ...measured },
  { description: 'Result and resource usage of a run.' },
)

export const ExecutionOutput = Type.Object(
  { ...anyway, created_at: Type.String({ description: 'ISO 8601, UTC.' }), ...measured },
  { description: 'State, output and resource usage of a run.' },
)
