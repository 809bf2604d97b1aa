import type { FastifyReply, FastifyRequest } from 'fastify'
import Type from 'typebox'
import { Refusal, type RefusalCode } from '../../base/errors.ts'
import type { DeliveryMode } from '../../base/execution-status.ts'
import { toLanguage } from '../../base/run.ts'
import type { Caller } from '../../core/caller.ts'
import { CoalescingWriter } from '../../core/runs/coalescing-writer.ts'
import type { ExecuteEvent } from '../../core/runs/execute-event.ts'
import type { ExecuteRequest } from '../../core/runs/request.ts'
import { toTranscript } from '../../core/runs/transcript.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Asked } from '../../tools/execute/result.ts'
import { toRequest } from '../../tools/execute/sandbox-execute.ts'
import { SandboxExecuteInput } from '../../tools/execute/schema.ts'
import { errorLine, sendJson, startWriting } from '../answer.ts'
import { baseUrlOf } from '../base-url.ts'
import { keyOperation, type Operation, type ServerContext } from '../operation.ts'
import { oneOf } from '../schemas.ts'
import { executeExample } from './examples.ts'
import { FinishedExecution, imagesOf, toExecution } from './execution.ts'
import { encodingMeaning, encodingOf, linesFormOf, wantsLines } from './execution-output.ts'
import { lineSchema } from './line-schemas.ts'
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
  { title: 'ExecuteRequest', additionalProperties: false },
)

/** The answer to `Prefer: respond-async`. */
const Accepted = Type.Object({ trace_id: Type.String(), status: oneOf(['running']) }, { title: 'AcceptedExecution' })

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
      'Run code. With Accept: application/x-ndjson the answer streams line by line; with Prefer: respond-async the answer is 202 at once, and the result is posted to webhook_url or fetched by its trace_id. Every run that started is answered with 200, however it ended',
    query: { encoding: encodingMeaning },
    body: ExecuteBody,
    aliases: { language: toLanguage },
    example: executeExample,
    answers: { 200: FinishedExecution, 202: Accepted },
    lines: lineSchema('ExecuteLine', FinishedExecution),
    refusals,
    handle: async ({ server, core, caller, request, reply, query, body }) => {
      const asked = { timings: body.timings === true, network: body.network === true }
      const encoding = encodingOf(query.encoding)
      const delivery = deliveryOf(request, body.webhook_url, caller)
      const events = core.execute(caller, { ...toRequest(body, true), kept: true, ...delivery }, never)
      switch (delivery.deliveryMode) {
        case 'webhook':
        case 'polling':
          return sendAccepted(reply, server, events)
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

/** @throws Refusal invalid_argument for an address that nothing would be sent to. */
function deliveryOf(
  request: FastifyRequest,
  url: string | undefined,
  { profile }: Caller,
): Pick<ExecuteRequest, 'webhookUrl'> & { deliveryMode: DeliveryMode } {
  if (prefersAsync(request)) {
    const webhookUrl = url ?? profile.calls.webhookUrl
    return webhookUrl === null ? { deliveryMode: 'polling' } : { deliveryMode: 'webhook', webhookUrl }
  }
  if (url === undefined) return { deliveryMode: wantsLines(request) ? 'streaming' : 'inline' }
  throw new Refusal('invalid_argument', { field: 'webhook_url', problem: 'requires the header Prefer: respond-async' })
}

/** Answers once the run, and its pending webhook delivery if any, is stored. The run continues in the background. */
async function sendAccepted(
  reply: FastifyReply,
  { core, ...addressing }: ServerContext,
  events: AsyncGenerator<ExecuteEvent>,
): Promise<undefined> {
  const { value: accepted } = await events.next()
  if (accepted?.kind !== 'accepted') throw new Error('the first event of a run is not its acceptance')
  core.drainInBackground(events)
  reply.headers({
    'x-trace-id': accepted.runId,
    'preference-applied': 'respond-async',
    location: `${baseUrlOf(reply.request, addressing)}/v1/executions/${accepted.runId}`,
  })
  await sendJson(reply, 202, JSON.stringify({ trace_id: accepted.runId, status: 'running' }))
}

async function sendOnce(reply: FastifyReply, events: AsyncGenerator<ExecuteEvent>, asked: Asked): Promise<undefined> {
  const { value: accepted } = await events.next()
  if (accepted?.kind !== 'accepted') throw new Error('the first event of a run is not its acceptance')
  const { runId, createdAt, deliveryMode } = accepted
  reply.header('x-trace-id', runId)
  for await (const event of events) {
    if (event.kind !== 'ended' && event.kind !== 'recorded') continue
    const how = { createdAt, completedAt: event.completedAt, deliveryMode }
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
  const form = linesFormOf(reply.request)
  const writer = startWriting(reply).keepAlive(form.keepAlive)
  const lines = new RunLines(accepted, encoding, asked)
  const paced = new CoalescingWriter(
    (text) => writer.write(text),
    (characters) => reply.request.open?.holdUnread(characters),
  )
  try {
    paced.add(form.convert(lines.opening()))
    for await (const event of events) paced.add(form.convert(lines.add(event)))
  } catch (error) {
    const refusal = error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, log) })
    paced.add(form.convert(errorLine(refusal)))
  } finally {
    await paced.settled()
    writer.end()
  }
}
