import type { FastifyReply, RouteHandlerMethod } from 'fastify'
import Type from 'typebox'
import type { Core } from '../../core/core.ts'
import { toPageRequest } from '../../core/paging.ts'
import { nothingKept, toStreamText, wholeCharacters } from '../../core/runs/transcript.ts'
import { endingOnTheWire } from '../../tools/execute/result.ts'
import { sendJson } from '../answer.ts'
import { pageWords, readQuery } from '../query.ts'
import { ListedExecution, toListed, toRecorded } from './execution.ts'

export const ExecutionList = Type.Object({
  data: Type.Array(ListedExecution),
  next_cursor: Type.Unsafe<string | null>({
    anyOf: [{ type: 'string' }, { type: 'null' }],
    description: 'Give it back as cursor for what comes next; null at the end.',
  }),
})

export const Cancelling = Type.Object({ trace_id: Type.String(), status: Type.Literal('cancelling') })

/** What a run printed so far, or in all. */
export const ExecutionOutputSoFar = Type.Object({
  trace_id: Type.String(),
  status: Type.Unsafe<'running' | 'ended'>({ type: 'string', enum: ['running', 'ended'] }),
  ending: Type.Unsafe<unknown>({ anyOf: [{ type: 'object' }, { type: 'null' }] }),
  stdout: Type.Unsafe<string | null>({ anyOf: [{ type: 'string' }, { type: 'null' }] }),
  stderr: Type.Unsafe<string | null>({ anyOf: [{ type: 'string' }, { type: 'null' }] }),
  truncated: Type.Boolean(),
  output_kept: Type.Boolean(),
})

/** Ends a run; its answer arrives where it was asked for. The body is not looked at. */
export const cancelExecution =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const { id } = request.params as { id: string }
    await core.cancel(request.caller, id)
    return answer(reply, id, { trace_id: id, status: 'cancelling' })
  }

export const getExecution =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const { id } = request.params as { id: string }
    readQuery(request.query, [])
    return answer(reply, id, toRecorded(await core.execution(request.caller, id)))
  }

const filters = ['thread_id', 'status', 'language', 'created_after', 'created_before', ...pageWords] as const
const metadataPrefix = 'metadata.'

export const listExecutions =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const given = readQuery(request.query, filters, metadataPrefix)
    const { items, nextCursor } = await core.executions(request.caller, {
      ...toPageRequest(given),
      threadId: given.thread_id,
      status: given.status,
      language: given.language,
      createdAfter: given.created_after,
      createdBefore: given.created_before,
      metadata: Object.entries(given).flatMap(([name, value]) =>
        name.startsWith(metadataPrefix) ? [[name.slice(metadataPrefix.length), value] as const] : [],
      ),
    })
    return sendJson(reply, 200, JSON.stringify({ data: items.map(toListed), next_cursor: nextCursor }))
  }

/** One JSON object with what a run printed so far. */
export async function sendOutputOnce(core: Core, reply: FastifyReply, id: string, look: LookArguments): Promise<void> {
  const { ending, output } = await core.look(look.caller, id, { waitMs: 0, signal: look.signal })
  const kept = output ?? nothingKept
  const isEnded = ending !== null
  const [stdout, stderr] = (['stdout', 'stderr'] as const).map((stream) =>
    toStreamText(isEnded ? kept[stream] : wholeCharacters(kept[stream]), 0),
  )
  return answer(reply, id, {
    trace_id: id,
    status: isEnded ? 'ended' : 'running',
    ending: ending && endingOnTheWire(ending),
    stdout: output && stdout!.text,
    stderr: output && stderr!.text,
    truncated: stdout!.omittedBytes + stderr!.omittedBytes > 0,
    output_kept: output !== null,
  })
}

interface LookArguments {
  caller: Parameters<Core['look']>[0]
  signal: AbortSignal
}

function answer(reply: FastifyReply, id: string, body: object): Promise<void> {
  reply.header('x-trace-id', id)
  return sendJson(reply, 200, JSON.stringify(body))
}
