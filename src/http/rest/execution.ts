import Type from 'typebox'
import { type ExecutionStatus, executionStatuses, statusOf } from '../../base/execution-status.ts'
import { languages, type ShownImage } from '../../base/run.ts'
import { type Delivery, type HistoryRun, type RecordedRun, resultOf } from '../../core/runs/history.ts'
import { type Transcript, toTranscript } from '../../core/runs/transcript.ts'
import { endingInWords, exitCodeOf } from '../../tools/execute/ending-words.ts'
import { type Asked, endingOnTheWire, succeeded, toStructuredContent } from '../../tools/execute/result.ts'
import { inBase64 } from '../../tools/execute/rich.ts'

const oneOf = <const Values extends readonly string[]>(values: Values) =>
  Type.Unsafe<Values[number]>({ type: 'string', enum: [...values] })
const orNull = (type: 'integer' | 'number' | 'string' | 'boolean' | 'object', description: string) =>
  Type.Unsafe<unknown>({ anyOf: [{ type }, { type: 'null' }], description })

/** What is told of every run, in a list too. */
const listed = {
  trace_id: Type.String(),
  status: oneOf(executionStatuses),
  success: orNull('boolean', 'null while it goes on.'),
  exit_code: orNull('integer', '124 timed out, 137 out of memory, 128 + N ended by signal N; null while it goes on.'),
  ending: Type.Unsafe<unknown>({ anyOf: [{ type: 'object' }, { type: 'null' }], description: 'How it ended.' }),
  error: orNull('string', 'How it ended, in words; null on success and while it goes on.'),
  duration_ms: orNull('number', 'Wall time of the program; null while it goes on.'),
  language: oneOf(languages),
  thread_id: orNull('string', 'The thread that was its home.'),
  metadata: orNull('object', 'As it was sent.'),
  subject: orNull('string', 'As it was sent.'),
  created_at: Type.String(),
  completed_at: orNull('string', 'null while it goes on.'),
  delivery_mode: oneOf(['inline', 'streaming', 'webhook']),
}

export const ListedExecution = Type.Object(listed)

/** A run as it is now, or as it ended. */
export const Execution = Type.Object(
  {
    ...listed,
    stdout: orNull('string', 'null while it goes on, and where what it printed is not kept.'),
    stderr: orNull('string', 'As stdout.'),
    truncated: orNull('boolean', 'Whether output was left out.'),
    images: Type.Optional(
      Type.Array(Type.Object({ mime_type: Type.String(), data_base64: Type.String() }), {
        description: 'What it showed, where that is kept; absent where there was nothing.',
      }),
    ),
    output_kept: Type.Boolean({ description: 'Whether stdout and stderr are what it printed.' }),
    code: orNull('string', 'Where the org keeps code.'),
    delivery: Type.Unsafe<unknown>({
      anyOf: [{ type: 'object' }, { type: 'null' }],
      description: 'Of a webhook: status pending, delivered or failed, attempts, next_attempt_at and problem.',
    }),
  },
  { description: 'One that has ended has the fields of the result of sandbox_execute as well.' },
)

/** A finished run as REST clients read it; besides the common fields it carries everything the tool answers. */
export function toExecution(
  transcript: Transcript,
  {
    createdAt,
    completedAt,
    deliveryMode,
  }: { createdAt: string; completedAt: string; deliveryMode: HistoryRun['deliveryMode'] },
  asked: Asked,
): Record<string, unknown> {
  const { result, stdout, stderr } = transcript
  return {
    ...toStructuredContent(transcript, asked),
    ...statusFields(result.ending),
    truncated: stdout.omittedBytes + stderr.omittedBytes > 0,
    created_at: createdAt,
    completed_at: completedAt,
    delivery_mode: deliveryMode,
  }
}

/** What a run showed, where that is told at once. */
export const imagesOf = ({ images }: Transcript): object =>
  images.length > 0 ? { images: images.map(imageOnTheWire) } : {}

export const imageOnTheWire = ({ mimeType, bytes }: ShownImage): { mime_type: string; data_base64: string } => ({
  mime_type: mimeType,
  data_base64: inBase64(bytes),
})

/** A run in a list: without what it printed. */
export function toListed(row: HistoryRun): Record<string, unknown> {
  const { ending, result, metadata } = row
  return {
    trace_id: row.id,
    ...(ending === null ? unfinished : { ...statusFields(ending), ending: endingOnTheWire(ending) }),
    duration_ms: result === null ? null : Math.round(result.durationMs * 1000) / 1000,
    language: row.language,
    thread_id: row.threadId,
    metadata: metadata === null ? null : (JSON.parse(metadata) as unknown),
    subject: row.subject,
    created_at: row.createdAt,
    completed_at: row.finishedAt,
    delivery_mode: row.deliveryMode,
  }
}

/** A run with all that is kept of it. */
export function toRecorded({ row, output, code, delivery }: RecordedRun): Record<string, unknown> {
  const { finishedAt: completedAt, createdAt, deliveryMode } = row
  const beside = { code, delivery: delivery && toDelivery(delivery) }
  if (completedAt === null) {
    return { ...toListed(row), stdout: null, stderr: null, truncated: null, output_kept: false, ...beside }
  }
  const how = { createdAt, completedAt, deliveryMode }
  const transcript = toTranscript(row.id, resultOf(row), output)
  const ended = { ...toExecution(transcript, how, { timings: true }), ...imagesOf(transcript) }
  const lost = output === null ? { stdout: null, stderr: null } : {}
  return { ...ended, ...toListed(row), ...lost, output_kept: output !== null, ...beside }
}

/** What a webhook is sent: the run, without how that goes, and without images, which may be asked for. */
export function toDelivered(run: RecordedRun): Record<string, unknown> {
  const { delivery: _, code: __, images: ___, ...told } = toRecorded(run)
  return told
}

const unfinished = {
  status: 'running' satisfies ExecutionStatus,
  success: null,
  exit_code: null,
  ending: null,
  error: null,
}

function statusFields(ending: Parameters<typeof statusOf>[0]) {
  const success = succeeded(ending)
  return {
    status: statusOf(ending),
    success,
    exit_code: exitCodeOf(ending),
    error: success ? null : endingInWords(ending),
  }
}

const deliveryWords = { waiting: 'pending', due: 'pending', delivered: 'delivered', dead: 'failed' } as const

const toDelivery = ({ id, status, attempts, dueAt, problem }: Delivery) => ({
  event_id: id,
  status: deliveryWords[status],
  attempts,
  next_attempt_at: status === 'due' ? dueAt : null,
  problem,
})
