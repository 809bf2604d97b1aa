import type { FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import Type from 'typebox'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { parseJson } from '../../base/json.ts'
import { compile } from '../../base/schema-check.ts'
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
import { SandboxExecuteInput } from '../../tools/execute/schema.ts'
import { errorBody, sendJson, startWriting } from '../answer.ts'
import { imagesOf, toExecution } from './execution.ts'
import { encodingOf, wantsLines } from './execution-output.ts'
import type { OutputEncoding } from './output-lines.ts'
import { RunLines } from './run-lines.ts'

/** The arguments of the tool, and where the ending is told. */
export const ExecuteBody = Type.Object(
  {
    ...SandboxExecuteInput.properties,
    webhook_url: Type.Optional(
      Type.String({
        maxLength: 2_048,
        description: 'With Prefer: respond-async: where the execution is posted to when it has ended. Must be https.',
      }),
    ),
  },
  { additionalProperties: false },
)

/** The answer to `Prefer: respond-async`. */
export const Accepted = Type.Object({ trace_id: Type.String(), status: Type.Literal('running') })

const checkBody = compile(ExecuteBody)

/** Cancels nothing: a run is ended by its limits or by `/v1/executions/{id}/cancel`, never by a lost connection. */
const never = new AbortController().signal

/**
 * Runs code. Answers with one JSON object, or with `Accept: application/x-ndjson` line by line as it happens. A run
 * that started is a 200, however it ended. `?encoding=base64` gives the bytes of the lines as they were printed.
 */
export const executeCode =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const body = checkBody(parseJson(request.body as Buffer))
    const told = { timings: body.timings === true }
    const encoding = encodingOf((request.query as { encoding?: unknown }).encoding)
    const mode = prefersAsync(request) ? 'webhook' : wantsLines(request) ? 'streaming' : 'inline'
    const asked: ExecuteRequest = {
      ...toRequest(body, true),
      kept: true,
      deliveryMode: mode,
      ...webhookOf(mode, body.webhook_url, request.caller),
    }
    const events = core.execute(request.caller, asked, never)
    switch (mode) {
      case 'webhook':
        return sendAccepted(reply, core, events)
      case 'streaming':
        return sendLines(reply, events, { ...told, encoding }, request.log as Log)
      case 'inline':
        return sendOnce(reply, events, told)
    }
  }

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
  throw new Refusal('invalid_argument', { field: 'webhook_url', problem: 'takes the header Prefer: respond-async' })
}

/** The run goes on by itself; its row, and the promise to tell its ending, are on the disk. */
async function sendAccepted(reply: FastifyReply, core: Core, events: AsyncGenerator<ExecuteEvent>): Promise<void> {
  const { value: accepted } = await events.next()
  if (accepted?.kind !== 'accepted') throw new Error('a run told of itself before it was accepted')
  core.leave(events)
  reply.header('x-trace-id', accepted.runId).header('preference-applied', 'respond-async')
  return sendJson(reply, 202, JSON.stringify({ trace_id: accepted.runId, status: 'running' }))
}

async function sendOnce(reply: FastifyReply, events: AsyncGenerator<ExecuteEvent>, asked: Asked): Promise<void> {
  const { value: accepted } = await events.next()
  if (accepted?.kind !== 'accepted') throw new Error('a run told of itself before it was accepted')
  const { runId, createdAt } = accepted
  reply.header('x-trace-id', runId)
  for await (const event of events) {
    if (event.kind !== 'ended' && event.kind !== 'recorded') continue
    const how = { createdAt, completedAt: timestamp(), deliveryMode: 'inline' } as const
    const transcript = toTranscript(runId, event.result, event.output)
    return sendJson(reply, 200, JSON.stringify({ ...toExecution(transcript, how, asked), ...imagesOf(transcript) }))
  }
  throw new Error(`the events of ${runId} stopped before its ending`)
}

/** Events are read to their end at their own pace, also when the client is slow or gone. */
async function sendLines(
  reply: FastifyReply,
  events: AsyncGenerator<ExecuteEvent>,
  { encoding, ...asked }: Asked & { encoding: OutputEncoding },
  log: Log,
): Promise<void> {
  const { value: accepted } = await events.next()
  if (accepted?.kind !== 'accepted') throw new Error('a run told of itself before it was accepted')
  reply.code(200).header('content-type', 'application/x-ndjson').header('x-accel-buffering', 'no')
  reply.header('x-trace-id', accepted.runId)
  const writer = startWriting(reply).keepAlive('{"type":"heartbeat"}\n')
  const lines = new RunLines(accepted, encoding, asked)
  const paced = new CoalescingWriter((text) => writer.write(text))
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
