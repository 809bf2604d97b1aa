import type { FastifyReply, RouteHandlerMethod } from 'fastify'
import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { Core } from '../../core/core.ts'
import { nothingKept, toStreamText, wholeCharacters } from '../../core/fold.ts'
import { toPageRequest } from '../../core/paging.ts'
import { endingOnTheWire } from '../../tools/execute/result.ts'
import { sendJson } from '../answer.ts'
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

const filters = ['thread_id', 'status', 'language', 'created_after', 'created_before', 'cursor', 'limit'] as const
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

/** BOUNDARY: a query has no other words than these, each once. @param prefix of further ones. */
export function readQuery(query: unknown, known: readonly string[], prefix?: string): Record<string, string> {
  const read: Record<string, string> = Object.create(null) as Record<string, string>
  for (const [name, value] of Object.entries(query as Record<string, unknown>)) {
    const field = name.slice(0, 64)
    if (!known.includes(name) && !(prefix !== undefined && name.startsWith(prefix) && name !== prefix)) {
      const names = [...known, ...(prefix === undefined ? [] : [`${prefix}KEY`])]
      const problem = names.length === 0 ? 'there are none here' : `known are ${names.join(', ')}`
      throw new Refusal('invalid_argument', { field, problem: `is not a parameter; ${problem}` })
    }
    if (typeof value !== 'string') throw new Refusal('invalid_argument', { field, problem: 'must be given once' })
    read[name] = value
  }
  return read
}
