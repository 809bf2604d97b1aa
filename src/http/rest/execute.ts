import type { FastifyReply, RouteHandlerMethod } from 'fastify'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Core } from '../../core/core.ts'
import type { ExecuteEvent } from '../../core/execute.ts'
import { Fold } from '../../core/fold.ts'
import { PacedText } from '../../core/paced-text.ts'
import { parseJson } from '../../mcp/json.ts'
import { fault, type Log } from '../../observe/log.ts'
import { compile } from '../../tools/arguments.ts'
import { type Catalog, requireOffered } from '../../tools/catalog.ts'
import type { Asked } from '../../tools/execute/result.ts'
import { sandboxExecute, toRequest } from '../../tools/execute/sandbox-execute.ts'
import { SandboxExecuteInput } from '../../tools/execute/schema.ts'
import { errorBody, sendJson, startWriting } from '../answer.ts'
import { toExecution } from './execution.ts'
import { encodingOf, wantsLines } from './execution-output.ts'
import type { OutputEncoding } from './output-lines.ts'
import { RunLines } from './run-lines.ts'

const checkBody = compile(SandboxExecuteInput)

/** Cancels nothing: a run is ended by its limits or by `/v1/executions/{id}/cancel`, never by a lost connection. */
const never = new AbortController().signal

/**
 * Runs code. Answers with one JSON object, or with `Accept: application/x-ndjson` line by line as it happens. A run
 * that started is a 200, however it ended. `?encoding=base64` gives the bytes of the lines as they were printed.
 */
export const executeCode =
  (core: Core, catalog: Catalog): RouteHandlerMethod =>
  async (request, reply) => {
    await requireOffered(sandboxExecute.name, catalog, core, request.caller)
    const streams = wantsLines(request)
    const body = checkBody(parseJson(request.body as Buffer))
    const told = { timings: body.timings === true }
    const asked = {
      ...toRequest(body, true),
      kept: true,
      deliveryMode: streams ? ('streaming' as const) : ('inline' as const),
    }
    const encoding = encodingOf((request.query as { encoding?: unknown }).encoding)
    const events = core.execute(request.caller, asked, never)
    return streams ? sendLines(reply, events, { ...told, encoding }, request.log as Log) : sendOnce(reply, events, told)
  }

async function sendOnce(reply: FastifyReply, events: AsyncGenerator<ExecuteEvent>, asked: Asked): Promise<void> {
  const fold = new Fold()
  let createdAt = ''
  for await (const event of events) {
    fold.add(event)
    if (event.kind === 'accepted') {
      createdAt = event.createdAt
      reply.header('x-trace-id', event.runId)
    }
  }
  const how = { createdAt, completedAt: timestamp(), deliveryMode: 'inline' } as const
  return sendJson(reply, 200, JSON.stringify(toExecution(fold.finish(), how, asked)))
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
  const paced = new PacedText((text) => writer.write(text))
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
