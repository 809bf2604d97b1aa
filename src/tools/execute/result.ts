import { statusOf } from '../../base/execution-status.ts'
import { exitCodeOf } from '../../base/exit-codes.ts'
import { type Ending, type RunResult, type Timings, unknownLimits, unmeasured } from '../../base/run.ts'
import type { Caller } from '../../core/caller.ts'
import type { Execution } from '../../core/runs/executions.ts'
import { type Output, type StreamText, type Transcript, toTranscript } from '../../core/runs/transcript.ts'
import { limitsOnTheWire } from '../limits.ts'
import type { Offers, ToolResult } from '../tool.ts'
import { endingInWords } from './ending-words.ts'
import { limitNotes, limitsMet } from './limits-met.ts'
import { restOfOutput } from './rest-of-output.ts'
import { richContent, richFields, richNotes } from './rich.ts'
import { shortenOutput } from './shortened-output.ts'

/** Optional parts of a result. The result of a run that is fetched later has all of them. */
export interface Asked {
  timings: boolean
  network?: boolean
}

/** The output as it is returned, which can be shorter than what is kept; `note` then says how to get the rest. */
export interface Shown extends Pick<Transcript, 'stdout' | 'stderr'> {
  note?: string
}

/** Builds the result of a run: Markdown for a model, fields for a program. Any ending but exit code 0 is an error. */
export function toToolResult(transcript: Transcript, asked: Asked, shown: Shown = transcript): ToolResult {
  return {
    content: [
      { type: 'text', text: toMarkdown(transcript, shown) },
      ...richContent(transcript.result, transcript.images),
    ],
    structuredContent: toStructuredContent(transcript, asked, shown),
    isError: !succeeded(transcript.result.ending),
  }
}

/** What the output of a result is shortened to, and the tools that its caller can call for the rest. */
export interface OutputLimit {
  maxCharacters: number
  offers: Offers
}

export const outputLimit = ({ profile }: Caller, offers: Offers): OutputLimit => ({
  maxCharacters: profile.calls.mcpOutputCharacters,
  offers,
})

/** Builds the result of a run with shortened output, and says how to get the rest. */
export function toShortResult(
  runId: string,
  result: RunResult,
  output: Output | null,
  asked: Asked,
  { maxCharacters, offers }: OutputLimit,
): ToolResult {
  const transcript = toTranscript(runId, result, output)
  const shown = output && shortenOutput(output, maxCharacters)
  if (output === null || shown === null || shown === output) return toToolResult(transcript, asked)
  const note = restOfOutput(runId, output, shown, offers)
  return toToolResult(transcript, asked, { ...toTranscript(runId, result, shown), note })
}

/**
 * Builds the result of a run that is fetched after its end.
 * @throws Error when the run is still running.
 */
export function executionResult({ runId, ending, result, output }: Execution, limit: OutputLimit): ToolResult {
  if (ending === null) throw new Error(`${runId} has not ended`)
  const short = toShortResult(
    runId,
    result ?? unmeasured(unknownLimits, ending),
    output,
    { timings: true, network: true },
    limit,
  )
  return output === null ? short : { ...short, structuredContent: { ...short.structuredContent, output_kept: true } }
}

export const succeeded = (ending: Ending): boolean => ending.kind === 'exited' && ending.code === 0

export function toMarkdown(transcript: Transcript, { stdout, stderr, note }: Shown = transcript): string {
  const { result, outputLost } = transcript
  const { ending } = result
  const parts = ['## Execution Result']
  if (stdout.text !== '') parts.push(section('stdout', stdout))
  if (stderr.text !== '') parts.push(section('stderr', stderr))
  parts.push(ending.kind === 'exited' ? `**Exit code:** ${ending.code}` : `**Ended:** ${endingInWords(ending)}`)
  if (result.oomKills > 0 && ending.kind !== 'out_of_memory') {
    parts.push(`**Note:** ${result.oomKills} of its processes were killed because memory ran out`)
  }
  if (outputLost) parts.push(outputLostNote)
  if (note !== undefined) parts.push(note)
  parts.push(...limitNotes(transcript), ...richNotes(result))
  return parts.join('\n\n')
}

/** Without this note, a model would conclude that the program printed nothing. */
export const outputLostNote = '**Note:** the output was not kept'

export function section(name: string, { text, totalBytes, omittedBytes }: StreamText): string {
  const fence = fenceFor(text)
  const body = text.endsWith('\n') ? text : `${text}\n`
  const shown = `**${name}:**\n${fence}\n${body}${fence}`
  return omittedBytes === 0
    ? shown
    : `${shown}\n\n**${name} truncated:** ${omittedBytes} of ${totalBytes} bytes left out`
}

/** Returns a fence longer than any run of backticks in the text, so that output cannot close its own code block. */
function fenceFor(text: string): string {
  const longest = text.match(/`{3,}/g)?.reduce((length, run) => Math.max(length, run.length), 0) ?? 0
  return '`'.repeat(Math.max(3, longest + 1))
}

export function toStructuredContent(
  transcript: Transcript,
  asked: Asked,
  { stdout, stderr }: Shown = transcript,
): Record<string, unknown> {
  const { runId, result } = transcript
  const { ending, limits } = result
  const met = limitsMet(transcript)
  return {
    status: statusOf(ending),
    ending: endingOnTheWire(ending),
    exit_code: exitCodeOf(ending),
    signal: ending.kind === 'signaled' ? ending.signal : null,
    stdout: stdout.text,
    stderr: stderr.text,
    stdout_bytes: stdout.totalBytes,
    stderr_bytes: stderr.totalBytes,
    stdout_truncated: stdout.omittedBytes > 0,
    stderr_truncated: stderr.omittedBytes > 0,
    duration_ms: toMicroseconds(result.durationMs),
    cpu_time_ms: toMicroseconds(result.cpuTimeMs),
    memory_peak_bytes: result.memoryPeakBytes,
    oom_kills: result.oomKills,
    ...(met.length > 0 && { limits_met: met }),
    limits: { timeout_ms: limits.timeoutMs, ...limitsOnTheWire(limits) },
    ...(asked.network === true && result.network && { network: result.network }),
    ...(asked.timings && { timings: timingsOnTheWire(result.timings) }),
    ...richFields(result),
    trace_id: runId,
  }
}

const timingsOnTheWire = (timings: Timings): Record<string, number> => ({
  queue_ms: toMicroseconds(timings.queueMs),
  slot_ms: toMicroseconds(timings.slotMs),
  jail_ms: toMicroseconds(timings.jailMs),
  host_ms: toMicroseconds(timings.hostMs),
  run_ms: toMicroseconds(timings.runMs),
  drain_ms: toMicroseconds(timings.drainMs),
  ...(timings.recordMs !== undefined && { record_ms: toMicroseconds(timings.recordMs) }),
})

/** Rounds milliseconds to microseconds; further digits are clock noise. */
const toMicroseconds = (ms: number): number => Math.round(ms * 1000) / 1000

export function endingOnTheWire(ending: Ending): Record<string, unknown> {
  switch (ending.kind) {
    case 'exited':
      return { kind: ending.kind, code: ending.code }
    case 'signaled':
      return { kind: ending.kind, signal: ending.signal }
    case 'timed_out':
      return { kind: ending.kind, limit_ms: ending.limitMs }
    case 'out_of_memory':
      return {
        kind: ending.kind,
        limit_bytes: ending.limitBytes,
        ...(ending.heldAs !== undefined && { held_as: ending.heldAs }),
      }
    case 'output_limit':
      return { kind: ending.kind, limit_bytes: ending.limitBytes }
    case 'disk_quota':
      return { kind: ending.kind, limit_bytes: ending.limitBytes, ...(ending.disk && { disk: ending.disk }) }
    case 'cancelled':
    case 'shutdown':
      return { kind: ending.kind }
    case 'failed':
      return { kind: ending.kind, reason: ending.reason }
  }
}
