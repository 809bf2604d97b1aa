import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { Execution } from '../../core/executions.ts'
import { bytesOf, keptAfter, nothingKept, toStreamText, toTranscript, wholeCharacters } from '../../core/fold.ts'
import { endingInWords } from '../execute/ending-words.ts'
import { endingOnTheWire, outputLostNote, section, succeeded, toStructuredContent } from '../execute/result.ts'
import type { ToolResult } from '../tool.ts'

/** The arguments that name a run and how much of it is known already. */
export const executionArguments = {
  trace_id: Type.String({
    maxLength: 128,
    description: 'The trace_id of the run, from the answer that it went on from.',
  }),
  cursor: Type.Optional(
    Type.String({ maxLength: 64, description: 'From an earlier answer: only what was printed since then is told.' }),
  ),
}

/**
 * A run as it is now, told from a cursor on: Markdown for a model, fields for a program.
 * @param canAsk whether whoever is told may call the tools by which a run is followed.
 */
export function toExecutionResult(execution: Execution, since: string | undefined, canAsk = true): ToolResult {
  const { runId, createdAt, ending, result, output } = execution
  const [stdoutOffset, stderrOffset] = readCursor(since)
  const kept = output ?? nothingKept
  const all = ending === null ? { stdout: wholeCharacters(kept.stdout), stderr: wholeCharacters(kept.stderr) } : kept
  const stdout = toStreamText(keptAfter(all.stdout, stdoutOffset), 0)
  const stderr = toStreamText(keptAfter(all.stderr, stderrOffset), 0)
  const cursor = `${bytesOf(all.stdout)}.${bytesOf(all.stderr)}`
  const measured = result === null ? {} : toStructuredContent(toTranscript(runId, result, output && all))
  const parts = [ending === null ? '## Still running' : '## Execution Result']
  if (stdout.text !== '') parts.push(section('stdout', stdout))
  if (stderr.text !== '') parts.push(section('stderr', stderr))
  if (ending === null)
    parts.push(canAsk ? howToGoOn(runId, cursor) : 'The run goes on by itself. What it prints from now on is not told.')
  else {
    parts.push(ending.kind === 'exited' ? `**Exit code:** ${ending.code}` : `**Ended:** ${endingInWords(ending)}`)
    if (output === null) parts.push(outputLostNote)
  }
  return {
    content: [{ type: 'text', text: parts.join('\n\n') }],
    structuredContent: {
      ...measured,
      status: ending === null ? 'running' : 'ended',
      ...(ending && { ending: endingOnTheWire(ending) }),
      exit_code: ending?.kind === 'exited' ? ending.code : null,
      signal: ending?.kind === 'signaled' ? ending.signal : null,
      stdout: stdout.text,
      stderr: stderr.text,
      trace_id: runId,
      created_at: createdAt,
      cursor,
    },
    isError: ending !== null && !succeeded(ending),
  }
}

/** For a model that has to decide what to do next. */
const howToGoOn = (runId: string, cursor: string): string =>
  `The run goes on by itself. To be told what it prints and how it ends, call execution_wait with trace_id "${runId}" and cursor "${cursor}"; execution_get looks without waiting, execution_cancel stops it.`

/** How many bytes of each stream were told. @throws Refusal `invalid_argument`. */
function readCursor(cursor: string | undefined): [number, number] {
  if (cursor === undefined || cursor === '') return [0, 0]
  const [, stdout, stderr] = /^(\d{1,15})\.(\d{1,15})$/.exec(cursor) ?? []
  if (stdout === undefined || stderr === undefined) {
    throw new Refusal('invalid_argument', { field: 'cursor', problem: 'was not given out by this server' })
  }
  return [Number(stdout), Number(stderr)]
}
