import type { FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import { Refusal } from '../../base/errors.ts'
import type { Core } from '../../core/core.ts'
import { fault, type Log } from '../../observe/log.ts'
import { errorBody, startWriting } from '../answer.ts'
import { readQuery } from '../query.ts'
import { toRecorded } from './execution.ts'
import { sendOutputOnce } from './executions.ts'
import { line, type OutputEncoding, OutputLines } from './output-lines.ts'
import { openingLine } from './run-lines.ts'

/**
 * What a run prints. With `Accept: application/x-ndjson` line by line as the streaming execute tells it, from after a
 * number on to the end; otherwise one object with what there is so far.
 */
export const executionOutput =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const { id } = request.params as { id: string }
    const query = readQuery(request.query, ['after', 'encoding'])
    const leaving = new AbortController()
    reply.raw.once('close', () => leaving.abort())
    const look = { caller: request.caller, signal: leaving.signal }
    if (wantsLines(request)) {
      // Known before the first byte of the answer.
      await core.execution(request.caller, id)
      const lines = new OutputLines(encodingOf(query.encoding), afterOf(query.after))
      return sendLines(core, reply, id, look, lines, request.log as Log)
    }
    for (const field of ['after', 'encoding'] as const) {
      if (query[field] === undefined) continue
      throw new Refusal('invalid_argument', { field, problem: 'takes the header Accept: application/x-ndjson' })
    }
    return sendOutputOnce(core, reply, id, look)
  }

/** A reader that is slow is waited for: nothing is held but one event, since the run is kept elsewhere. */
async function sendLines(
  core: Core,
  reply: FastifyReply,
  id: string,
  { caller, signal }: { caller: FastifyRequest['caller']; signal: AbortSignal },
  lines: OutputLines,
  log: Log,
): Promise<void> {
  reply.code(200).header('content-type', 'application/x-ndjson').header('x-accel-buffering', 'no')
  reply.header('x-trace-id', id)
  const writer = startWriting(reply).keepAlive('{"type":"heartbeat"}\n')
  try {
    await writer.write(openingLine(id))
    for await (const event of core.follow(caller, id, signal)) {
      if (event.kind === 'output' || event.kind === 'gap') await writer.write(lines.add(event))
      else if (event.kind === 'ended') {
        const rest = lines.rest('stdout', event.seq) + lines.rest('stderr', event.seq)
        const execution = toRecorded(await core.execution(caller, id))
        await writer.write(rest + line({ type: 'result', seq: event.seq, ...execution }))
      }
    }
  } catch (error) {
    const refusal = error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, log) })
    await writer.write(`{"type":"error",${errorBody(refusal).slice(1)}\n`)
  } finally {
    writer.end()
  }
}

export const wantsLines = ({ headers }: FastifyRequest): boolean =>
  (headers.accept ?? '').toLowerCase().includes('application/x-ndjson')

export function encodingOf(encoding: unknown = 'text'): OutputEncoding {
  if (encoding === 'text' || encoding === 'base64') return encoding
  throw new Refusal('invalid_argument', { field: 'encoding', problem: 'must be text or base64' })
}

function afterOf(after = '0'): number {
  if (/^\d{1,15}$/.test(after)) return Number(after)
  throw new Refusal('invalid_argument', { field: 'after', problem: 'must be the seq of a line that came before' })
}
