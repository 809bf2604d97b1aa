import type { FastifyReply, FastifyRequest } from 'fastify'
import Negotiator from 'negotiator'
import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { executionStatuses, statusOf } from '../../base/execution-status.ts'
import type { RunEvent } from '../../base/run.ts'
import type { Caller } from '../../core/caller.ts'
import type { Core } from '../../core/core.ts'
import type { RecordedRun } from '../../core/runs/history.ts'
import { nothingKept, toStreamText, wholeCharacters } from '../../core/runs/transcript.ts'
import { fault, type Log } from '../../observe/log.ts'
import { endingOnTheWire } from '../../tools/execute/result.ts'
import { errorLine, startWriting } from '../answer.ts'
import { type Answer, keyOperation, ok } from '../operation.ts'
import { oneOf, orNull } from '../schemas.ts'
import { BaponiLines, isBaponiClient } from './baponi-client.ts'
import { isolated } from './download-headers.ts'
import { EndingSchema } from './ending-schema.ts'
import { outputExample } from './examples.ts'
import { Execution, executionGroup, toRecorded } from './execution.ts'
import { lineSchema } from './line-schemas.ts'
import { line, type OutputEncoding, OutputLines } from './output-lines.ts'
import { openingLine } from './run-lines.ts'

/** The output of a run so far, or all of it. */
const ExecutionOutput = Type.Object(
  {
    trace_id: Type.String(),
    status: oneOf(executionStatuses),
    ending: orNull(EndingSchema),
    stdout: orNull(Type.String()),
    stderr: orNull(Type.String()),
    truncated: Type.Boolean(),
    output_kept: Type.Boolean(),
  },
  { title: 'ExecutionOutput' },
)

const linesMediaType = 'application/x-ndjson'

export const encodingMeaning = 'Encoding of output in lines: text (the default), or base64 for the exact bytes.'

export const executionOutput = keyOperation({
  id: 'getExecutionOutput',
  method: 'GET',
  path: '/v1/executions/{id}/output',
  capability: 'executions.read',
  group: executionGroup,
  summary:
    'Get the output of a run. With Accept: application/x-ndjson it is replayed line by line and followed until the run ends',
  query: {
    after: 'Replay only what follows this seq.',
    after_seq: 'Another name of `after`.',
    encoding: encodingMeaning,
  },
  example: outputExample,
  answers: { 200: ExecutionOutput },
  lines: lineSchema('FollowLine', Execution),
  refusals: ['invalid_argument', 'run_unknown', 'unavailable'],
  handle: async ({ core, caller, request, reply, params: { id }, query }) => {
    const closed = new AbortController()
    reply.raw.once('close', () => closed.abort())
    const reader = { caller, signal: closed.signal }
    if (wantsLines(request)) {
      // Refused here, an unknown run is a 404; the stream below could only report it in a line.
      await core.execution(caller, id)
      request.open?.require((now) => core.execution(now, id))
      const lines = new OutputLines(encodingOf(query.encoding), afterOf(query.after ?? query.after_seq))
      const events = core.follow(caller, id, closed.signal)
      return sendAsLines(reply, id, { events, recorded: () => core.execution(caller, id) }, lines)
    }
    for (const field of ['after', 'after_seq', 'encoding'] as const) {
      if (query[field] === undefined) continue
      throw new Refusal('invalid_argument', { field, problem: `requires the header Accept: ${linesMediaType}` })
    }
    reply.header('x-trace-id', id)
    return outputSoFar(core, id, reader)
  },
})

export const executionImage = keyOperation({
  id: 'getExecutionImage',
  method: 'GET',
  path: '/v1/executions/{id}/images/{number}',
  capability: 'executions.read',
  group: executionGroup,
  summary: 'Get an image that a run showed, by its number, from 1',
  answers: { 200: { mediaType: 'image/png' } },
  refusals: ['invalid_argument', 'run_unknown', 'run_image_unknown', 'unavailable'],
  handle: async ({ core, caller, request, reply, params: { id, number } }) => {
    const { output } = await core.execution(caller, id)
    const image = /^[1-9]\d{0,2}$/.test(number) ? output?.images[Number(number) - 1] : undefined
    if (image === undefined) throw new Refusal('run_image_unknown', { number: number.slice(0, 16) })
    const { mimeType, bytes } = image
    reply.header('x-trace-id', id).headers(isolated).headers({
      'content-type': mimeType,
      'content-length': bytes.byteLength,
    })
    const writer = startWriting(reply)
    if (request.method !== 'HEAD') await writer.writeBytes(bytes)
    writer.end()
    return undefined
  },
})

interface Reader {
  caller: Caller
  /** Aborts when the client disconnects. */
  signal: AbortSignal
}

async function outputSoFar(core: Core, id: string, { caller, signal }: Reader): Promise<Answer> {
  const { ending, output } = await core.waitForExecution(caller, id, { waitMs: 0, signal })
  const kept = output ?? nothingKept
  const isEnded = ending !== null
  const [stdout, stderr] = (['stdout', 'stderr'] as const).map((stream) =>
    toStreamText(isEnded ? kept[stream] : wholeCharacters(kept[stream]), 0),
  )
  return ok({
    trace_id: id,
    status: isEnded ? statusOf(ending) : 'running',
    ending: ending && endingOnTheWire(ending),
    stdout: output && stdout!.text,
    stderr: output && stderr!.text,
    truncated: stdout!.omittedBytes + stderr!.omittedBytes > 0,
    output_kept: output !== null,
  })
}

/** A run that is read while it is running. */
interface FollowedRun {
  events: AsyncIterable<RunEvent>
  /** Returns it as it is stored, after its end. */
  recorded(): Promise<RecordedRun>
}

/** Streams output as lines. A slow client delays only itself: one event at a time is read from what is stored. */
export async function sendAsLines(
  reply: FastifyReply,
  id: string,
  { events, recorded }: FollowedRun,
  lines: OutputLines,
): Promise<undefined> {
  reply.code(200).header('content-type', linesMediaType).header('x-accel-buffering', 'no')
  reply.header('x-trace-id', id)
  const form = linesFormOf(reply.request)
  const writer = startWriting(reply).keepAlive(form.keepAlive)
  const write = (text: string) => writer.write(form.convert(text))
  try {
    await write(openingLine(id))
    for await (const event of events) {
      switch (event.kind) {
        case 'running':
          break
        case 'output':
        case 'gap':
        case 'image':
          await write(lines.add(event))
          break
        case 'ended': {
          const rest = lines.rest('stdout', event.seq) + lines.rest('stderr', event.seq)
          const execution = toRecorded(await recorded())
          await write(rest + line({ type: 'result', seq: event.seq, ...execution }))
        }
      }
    }
  } catch (error) {
    const refusal =
      error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, reply.request.log as Log) })
    await write(errorLine(refusal))
  } finally {
    writer.end()
  }
}

/** How lines are written, by what the client reads. */
interface LinesForm {
  convert(text: string): string
  /** The line after a silence. */
  keepAlive: string | (() => string)
}

const ownForm: LinesForm = { convert: (text) => text, keepAlive: '{"type":"heartbeat"}\n' }

export function linesFormOf({ headers }: FastifyRequest): LinesForm {
  if (!isBaponiClient(headers)) return ownForm
  const lines = new BaponiLines()
  return { convert: (text) => lines.convert(text), keepAlive: () => lines.keepAlive() }
}

/** Whether the client names lines of JSON in `Accept`. Wildcards do not: they stand for the default. */
export const wantsLines = (request: FastifyRequest): boolean =>
  new Negotiator(request.raw).mediaTypes().some((type) => type.toLowerCase() === linesMediaType)

export function encodingOf(encoding: unknown = 'text'): OutputEncoding {
  if (encoding === 'text' || encoding === 'base64') return encoding
  throw new Refusal('invalid_argument', { field: 'encoding', problem: 'must be text or base64' })
}

function afterOf(after = '0'): number {
  if (/^\d{1,15}$/.test(after)) return Number(after)
  throw new Refusal('invalid_argument', { field: 'after', problem: 'must be the seq of an earlier line' })
}
