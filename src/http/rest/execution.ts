import Type from 'typebox'
import { deliveryModes, type ExecutionStatus, executionStatuses, statusOf } from '../../base/execution-status.ts'
import { exitCodeOf, exitCodesInWords } from '../../base/exit-codes.ts'
import { parseExact } from '../../base/json.ts'
import { languages, type ShownImage } from '../../base/run.ts'
import { type Delivery, type HistoryRun, type RecordedRun, resultOf } from '../../core/runs/history.ts'
import { type Transcript, toTranscript } from '../../core/runs/transcript.ts'
import { endingInWords } from '../../tools/execute/ending-words.ts'
import { type Asked, endingOnTheWire, succeeded, toStructuredContent } from '../../tools/execute/result.ts'
import { inBase64 } from '../../tools/execute/rich.ts'
import { SandboxExecuteOutput } from '../../tools/execute/schema.ts'
import type { Group } from '../operation.ts'
import { oneOf, orNull, Time } from '../schemas.ts'
import { EndingSchema } from './ending-schema.ts'

export const executionGroup: Group = { name: 'Executions', description: 'Runs, while they are running and after.' }

const AnyObject = Type.Unsafe({ type: 'object' })

/** An image that a run showed. */
export const Image = Type.Object(
  { mime_type: Type.String(), data_base64: Type.String({ description: 'The bytes in base64.' }) },
  { title: 'Image' },
)

const images = Type.Optional(
  Type.Array(Image, { description: 'The images that it showed, where they are kept; absent where there are none.' }),
)

const { status: _, ending: __, cursor: ___, ...measured } = SandboxExecuteOutput.properties

/** A run as the call that made it returns it. */
export const FinishedExecution = Type.Object(
  {
    ...measured,
    ending: EndingSchema,
    status: oneOf(executionStatuses),
    success: Type.Boolean(),
    error: orNull(Type.String({ description: 'How the run ended, as a sentence; null on success.' })),
    truncated: Type.Boolean({ description: 'Whether output was omitted.' }),
    images,
    created_at: Time,
    completed_at: Time,
    delivery_mode: oneOf(deliveryModes),
  },
  { title: 'FinishedExecution', description: 'A run that has ended.' },
)

/** The fields of a run in a list. */
const listed = {
  trace_id: Type.String(),
  status: oneOf(executionStatuses),
  success: orNull(Type.Boolean(), { description: 'null while it is running.' }),
  exit_code: orNull(Type.Integer(), {
    description: exitCodesInWords,
  }),
  ending: orNull(EndingSchema, { description: 'How it ended; null while it is running.' }),
  error: orNull(Type.String(), {
    description: 'How it ended, as a sentence; null on success and while it is running.',
  }),
  duration_ms: orNull(Type.Number(), { description: 'Wall time of the program; null while it is running.' }),
  language: oneOf(languages),
  thread_id: orNull(Type.String(), { description: 'The thread that it used.' }),
  metadata: orNull(AnyObject, { description: 'The metadata of the request.' }),
  subject: orNull(Type.String(), { description: 'The subject of the request.' }),
  created_at: Time,
  completed_at: orNull(Time, { description: 'null while it is running.' }),
  delivery_mode: oneOf(deliveryModes),
}

export const ListedExecution = Type.Object(listed, { title: 'ListedExecution' })

const DeliveryState = Type.Object(
  {
    event_id: Type.String(),
    status: oneOf(['pending', 'delivered', 'failed']),
    attempts: Type.Integer({ minimum: 0 }),
    next_attempt_at: orNull(Time),
    problem: orNull(Type.String()),
  },
  { title: 'Delivery', description: 'State of the webhook delivery.' },
)

/** A run as it is now, or as it ended. */
export const Execution = Type.Object(
  {
    ...Type.Partial(FinishedExecution).properties,
    ...listed,
    stdout: orNull(Type.String(), { description: 'null while it is running, and where output is not kept.' }),
    stderr: orNull(Type.String(), { description: 'As stdout.' }),
    truncated: orNull(Type.Boolean(), { description: 'Whether output was omitted.' }),
    images,
    output_kept: Type.Boolean({ description: 'Whether stdout and stderr are available.' }),
    code: orNull(Type.String(), { description: 'The code, where the organization keeps it.' }),
    delivery: orNull(DeliveryState, { description: 'null without a webhook.' }),
  },
  { title: 'Execution', description: 'A run. One that has ended has the fields of FinishedExecution as well.' },
)

/** Returns a run that has ended as REST answers it: the fields of every execution and those of the tool result. */
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

/** Returns the `images` field, absent where the run showed none. */
export const imagesOf = ({ images }: Transcript): object =>
  images.length > 0 ? { images: images.map(imageOnTheWire) } : {}

export const imageOnTheWire = ({ mimeType, bytes }: ShownImage): { mime_type: string; data_base64: string } => ({
  mime_type: mimeType,
  data_base64: inBase64(bytes),
})

/** Returns a run as lists have it, without its output. */
export function toListed(row: HistoryRun): Record<string, unknown> {
  const { ending, result, metadata } = row
  return {
    trace_id: row.id,
    ...(ending === null ? unfinished : { ...statusFields(ending), ending: endingOnTheWire(ending) }),
    duration_ms: result === null ? null : Math.round(result.durationMs * 1000) / 1000,
    language: row.language,
    thread_id: row.threadId,
    metadata: metadata === null ? null : parseExact(metadata),
    subject: row.subject,
    created_at: row.createdAt,
    completed_at: row.finishedAt,
    delivery_mode: row.deliveryMode,
  }
}

/** Returns a run with everything that is kept of it. */
export function toRecorded({ row, output, code, delivery }: RecordedRun): Record<string, unknown> {
  const { finishedAt: completedAt, createdAt, deliveryMode } = row
  const kept = { code, delivery: delivery && toDelivery(delivery) }
  if (completedAt === null) {
    return { ...toListed(row), stdout: null, stderr: null, truncated: null, output_kept: false, ...kept }
  }
  const how = { createdAt, completedAt, deliveryMode }
  const transcript = toTranscript(row.id, resultOf(row), output)
  const ended = { ...toExecution(transcript, how, { timings: true, network: true }), ...imagesOf(transcript) }
  const lost = output === null ? { stdout: null, stderr: null } : {}
  return { ...ended, ...toListed(row), ...lost, output_kept: output !== null, ...kept }
}

/** Returns the body of a webhook: the run without its delivery, its code and its images, which clients can fetch. */
export function toDelivered(run: RecordedRun): Record<string, unknown> {
  const { delivery: _, code: __, images: ___, ...delivered } = toRecorded(run)
  return delivered
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
