import type { FastifyReply, FastifyRequest } from 'fastify'
import Type from 'typebox'
import { timestamp } from '../../base/clock.ts'
import { Refusal, type RefusalCode } from '../../base/errors.ts'
import { executionStatuses } from '../../base/execution-status.ts'
import { toLanguage } from '../../base/run.ts'
import type { Caller } from '../../core/caller.ts'
import type { Core } from '../../core/core.ts'
import { addressMissing } from '../../core/jobs/webhooks.ts'
import { CoalescingWriter } from '../../core/runs/coalescing-writer.ts'
import type { ExecuteEvent } from '../../core/runs/execute-event.ts'
import type { ExecuteRequest } from '../../core/runs/request.ts'
import { toTranscript } from '../../core/runs/transcript.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Asked } from '../../tools/execute/result.ts'
import { toRequest } from '../../tools/execute/sandbox-execute.ts'
import { SandboxExecuteInput, SandboxExecuteOutput } from '../../tools/execute/schema.ts'
import { errorBody, sendJson, startWriting } from '../answer.ts'
import { keyOperation, type Operation } from '../operation.ts'
import { oneOf, orNull, Time } from '../schemas.ts'
import { imagesOf, toExecution } from './execution.ts'
import { encodingMeaning, encodingOf, wantsLines } from './execution-output.ts'
import type { OutputEncoding } from './output-lines.ts'
import { RunLines } from './run-lines.ts'

/** The arguments of `sandbox_execute`, and the webhook of a detached run. */
const ExecuteBody = Type.Object(
  {
    ...SandboxExecuteInput.properties,
    webhook_url: Type.Optional(
      Type.String({
        maxLength: 2_048,
        description:
          'With Prefer: respond-async: the https address to which the execution is posted when the run has ended.',
      }),
    ),
  },
  { additionalProperties: false },
)

/** The answer to `Prefer: respond-async`. */
const Accepted = Type.Object({ trace_id: Type.String(), status: Type.Literal('running') })

const { status: _, ...output } = SandboxExecuteOutput.properties

const FinishedExecution = Type.Object(
  {
    ...output,
    status: oneOf(executionStatuses),
    success: Type.Boolean(),
    error: orNull(Type.String({ description: 'How the run ended, as a sentence; null on success.' })),
    truncated: Type.Boolean({ description: 'Whether output was omitted.' }),
    created_at: Time,
    completed_at: Time,
    delivery_mode: oneOf(['inline', 'streaming', 'webhook']),
  },
  { description: 'A run that has ended.' },
)

const refusals: readonly RefusalCode[] = [
  'invalid_argument',
  'code_empty',
  'code_too_large',
  'language_unavailable',
  'timeout_too_long',
  'thread_busy',
  'subject_conflict',
  'idempotency_conflict',
  'limit_reached',
  'queue_full',
  'queue_timeout',
  'unavailable',
]

/** Never aborts: a lost connection does not end a run. Its limits and `/v1/executions/{id}/cancel` do. */
const never = new AbortController().signal

export const executeOperations: readonly Operation[] = [
  keyOperation({
    id: 'execute',
    method: 'POST',
    path: '/v1/sandbox/execute',
    capability: 'execute',
    group: { name: 'Execute', description: 'Run code.' },
    summary:
      'Run code. With Accept: application/x-ndjson the answer streams line by line; with Prefer: respond-async it is posted to webhook_url. Every run that started is answered with 200, however it ended',
    query: { encoding: encodingMeaning },
    unknownQuery: 'ignored',
    body: ExecuteBody,
    aliases: { language: toLanguage },
    answers: { 200: FinishedExecution, 202: Accepted },
    refusals,
    handle: async ({ core, caller, request, reply, query, body }) => {
      const asked = { timings: body.timings === true }
      const encoding = encodingOf(query.encoding)
      const mode = prefersAsync(request) ? 'webhook' : wantsLines(request) ? 'streaming' : 'inline'
      const run: ExecuteRequest = {
        ...toRequest(body, true),
        kept: true,
        deliveryMode: mode,
        ...webhookOf(mode, body.webhook_url, caller),
      }
      const events = core.execute(caller, run, never)
      switch (mode) {
        case 'webhook':
          return sendAccepted(reply, core, events)
        case 'streaming':
          return sendAsLines(reply, events, { ...asked, encoding }, request.log as Log)
        case 'inline':
          return sendOnce(reply, events, asked)
      }
    },
  }),
]

/** https://www.rfc-editor.org/rfc/rfc7240#section-4.1 */
const prefersAsync = ({ headers }: FastifyRequest): boolean =>
  [headers.prefer ?? []]
    .flat()
    .join(',')
    .split(',')
    .some((preference) => preference.split(';')[0]!.trim().toLowerCase() === 'respond-async')

function webhookOf(mode: string, url: string | undefined, { profile }: Caller): { webhookUrl?: string } {
  if (mode === 'webhook') {
    const webhookUrl = url ?? profile.calls.webhookUrl
    if (webhookUrl === null) throw addressMissing()
    return { webhookUrl }
  }
  if (url === undefined) return {}
  throw new Refusal('invalid_argument', { field: 'webhook_url', problem: 'requires the header Prefer: respond-async' })
}

/** Answers once the run and its pending webhook delivery are stored. The run continues in the background. */
async function sendAccepted(reply: FastifyReply, core: Core, events: AsyncGenerator<ExecuteEvent>): Promise<undefined> {
  const { value: accepted } = await events.next()
  if (accepted?.kind !== 'accepted') throw new Error('the first event of a run is not its acceptance')
  core.drainInBackground(events)
  reply.header('x-trace-id', accepted.runId).header('preference-applied', 'respond-async')
  await sendJson(reply, 202, JSON.stringify({ trace_id: accepted.runId, status: 'running' }))
}

async function sendOnce(reply: FastifyReply, events: AsyncGenerator<ExecuteEvent>, asked: Asked): Promise<undefined> {
  const { value: accepted } = await events.next()
  if (accepted?.kind !== 'accepted') throw new Error('the first event of a run is not its acceptance')
  const { runId, createdAt } = accepted
  reply.header('x-trace-id', runId)
  for await (const event of events) {
    if (event.kind !== 'ended' && event.kind !== 'recorded') continue
    const how = { createdAt, completedAt: timestamp(), deliveryMode: 'inline' } as const
    const transcript = toTranscript(runId, event.result, event.output)
    await sendJson(reply, 200, JSON.stringify({ ...toExecution(transcript, how, asked), ...imagesOf(transcript) }))
    return
  }
  throw new Error(`the events of ${runId} stopped before its ending`)
}

/** Streams events as lines. They are read to the end without waiting for the client, also when it disconnects. */
async function sendAsLines(
  reply: FastifyReply,
  events: AsyncGenerator<ExecuteEvent>,
  { encoding, ...asked }: Asked & { encoding: OutputEncoding },
  log: Log,
): Promise<undefined> {
  const { value: accepted } = await events.next()
  if (accepted?.kind !== 'accepted') throw new Error('the first event of a run is not its acceptance')
  reply.code(200).header('content-type', 'application/x-ndjson').header('x-accel-buffering', 'no')
  reply.header('x-trace-id', accepted.runId)
  const writer = startWriting(reply).keepAlive('{"type":"heartbeat"}\n')
  const lines = new RunLines(accepted, encoding, asked)
  const paced = new CoalescingWriter(
    (text) => writer.write(text),
    (characters) => reply.request.open?.holdUnread(characters),
  )
  try {
    paced.add(lines.opening())
    for await (const event of events) paced.add(lines.add(event))
  } catch (error) {
    const refusal = error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, log) })
    paced.add(`{"type":"error",${errorBody(refusal).slice(1)}\n`)
  } finally {
    await paced.settled()
    writer.end()
  }
}
