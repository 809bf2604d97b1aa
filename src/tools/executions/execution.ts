import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { statusOf } from '../../base/execution-status.ts'
import { exitCodeOf } from '../../base/exit-codes.ts'
import type { Execution } from '../../core/runs/executions.ts'
import {
  bytesOf,
  keptAfter,
  nothingKept,
  toStreamText,
  toTranscript,
  wholeCharacters,
} from '../../core/runs/transcript.ts'
import { endingInWords } from '../execute/ending-words.ts'
import { limitNotes } from '../execute/limits-met.ts'
import { restOfOutput } from '../execute/rest-of-output.ts'
import { endingOnTheWire, outputLostNote, section, succeeded, toStructuredContent } from '../execute/result.ts'
import { richContent, richNotes } from '../execute/rich.ts'
import { shortenOutput } from '../execute/shortened-output.ts'
import type { Offers, ToolResult } from '../tool.ts'

/** The arguments that identify a run and the output that the client has already. */
export const executionArguments = {
  trace_id: Type.String({
    maxLength: 128,
    description: 'The trace_id of the run, from the result of the call that started it.',
  }),
  cursor: Type.Optional(
    Type.String({ maxLength: 64, description: 'From an earlier result: only newer output is returned.' }),
  ),
}

/**
 * Builds the result for a run as it is now: Markdown for a model, fields for a program.
 * @param since cursor of an earlier result; only newer output is included.
 * @param offers the tools that the caller can call.
 * @param maxCharacters limit on the output that is included, over both streams.
 */
export function toExecutionResult(
  execution: Execution,
  since: string | undefined,
  offers: Offers,
  maxCharacters = Number.POSITIVE_INFINITY,
): ToolResult {
  const { runId, createdAt, ending, result, output } = execution
  const [stdoutOffset, stderrOffset] = readCursor(since)
  const kept = output ?? nothingKept
  const all =
    ending === null ? { ...kept, stdout: wholeCharacters(kept.stdout), stderr: wholeCharacters(kept.stderr) } : kept
  const newer = {
    ...all,
    stdout: keptAfter(all.stdout, stdoutOffset),
    stderr: keptAfter(all.stderr, stderrOffset),
  }
  const shown = shortenOutput(newer, maxCharacters)
  const stdout = toStreamText(shown.stdout, 0)
  const stderr = toStreamText(shown.stderr, 0)
  const cursor = `${bytesOf(all.stdout)}.${bytesOf(all.stderr)}`
  const measured =
    result === null ? {} : toStructuredContent(toTranscript(runId, result, output && all), { timings: true })
  const parts = [ending === null ? '## Still running' : '## Execution Result']
  if (stdout.text !== '') parts.push(section('stdout', stdout))
  if (stderr.text !== '') parts.push(section('stderr', stderr))
  if (shown !== newer) parts.push(restOfOutput(runId, newer, shown, offers, [stdoutOffset, stderrOffset]))
  if (ending === null) parts.push(followUps(runId, cursor, offers))
  else {
    parts.push(ending.kind === 'exited' ? `**Exit code:** ${ending.code}` : `**Ended:** ${endingInWords(ending)}`)
    if (output === null) parts.push(outputLostNote)
    const said = { stdout: toStreamText(newer.stdout, 0), stderr: toStreamText(newer.stderr, 0) }
    if (result) parts.push(...limitNotes({ result, ...said }), ...richNotes(result))
  }
  return {
    content: [{ type: 'text', text: parts.join('\n\n') }, ...(result ? richContent(result, kept.images) : [])],
    structuredContent: {
      ...measured,
      status: ending === null ? 'running' : statusOf(ending),
      ...(ending && { ending: endingOnTheWire(ending) }),
      exit_code: ending && exitCodeOf(ending),
      signal: ending?.kind === 'signaled' ? ending.signal : null,
      stdout: stdout.text,
      stderr: stderr.text,
      ...(ending !== null && output !== null && { output_kept: true }),
      trace_id: runId,
      created_at: createdAt,
      cursor,
    },
    isError: ending !== null && !succeeded(ending),
  }
}

/** What can be done with a run in the background, by the tool that does it. */
const waysToFollowUp = {
  execution_wait: 'waits for its output and its end',
  execution_get: 'returns its output without waiting',
  execution_cancel: 'stops it',
} as const
export const followUpTools = Object.keys(waysToFollowUp)

/** Says what a model can do next. */
function followUps(runId: string, cursor: string, offers: Offers): string {
  const ways = Object.entries(waysToFollowUp).flatMap(([tool, does]) => (offers(tool) ? [`${tool} ${does}`] : []))
  if (ways.length === 0) return 'The run continues in the background. Its later output cannot be fetched.'
  return `The run continues in the background. With trace_id "${runId}" and cursor "${cursor}", ${ways.join('; ')}.`
}

/** Returns how many bytes of each stream the client has. @throws Refusal `invalid_argument`. */
function readCursor(cursor: string | undefined): [number, number] {
  if (cursor === undefined || cursor === '') return [0, 0]
  const [, stdout, stderr] = /^(\d{1,15})\.(\d{1,15})$/.exec(cursor) ?? []
  if (stdout === undefined || stderr === undefined) {
    throw new Refusal('invalid_argument', { field: 'cursor', problem: 'was not issued by this server' })
  }
  return [Number(stdout), Number(stderr)]
}
