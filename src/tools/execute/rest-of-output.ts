import type { Output, OutputStream } from '../../core/runs/transcript.ts'
import type { Offers } from '../tool.ts'
import { keptBytes } from './shortened-output.ts'

/** The tool that returns all output that is kept. */
export const restTool = 'execution_get'

/**
 * Says how to get the output that a shortened result leaves out.
 * @param offers the tools that the caller can call.
 * @param since how many bytes of each stream precede `full`.
 */
export function restOfOutput(
  runId: string,
  full: Output,
  shown: Output,
  offers: Offers,
  since: readonly [number, number] = [0, 0],
): string {
  if (!offers(restTool))
    return '**Note:** the output is shortened. Print less, or write it to a file and print the parts that are needed'
  const stdout = since[0] + shownBefore(full.stdout, shown.stdout)
  const stderr = since[1] + shownBefore(full.stderr, shown.stderr)
  return `**Note:** the output is shortened. ${restTool} with trace_id "${runId}" and cursor "${stdout}.${stderr}" returns the rest`
}

/** Returns how many bytes of a stream the reader has before the first that is left out. */
const shownBefore = (full: OutputStream, { head, omittedBytes, tail }: OutputStream): number =>
  full.omittedBytes === omittedBytes && keptBytes(full) === head.length + tail.length
    ? head.length + omittedBytes + tail.length
    : head.length
