import { CommandOutputFold, type OutputPiece } from '../../core/sandboxes/command-output.ts'
import type { CallEnded, CallEvent, Display } from '../../core/sandboxes/kernels/calls.ts'

/** All that a call of stateful code returned. */
export interface CollectedCall {
  /** What was written, in its order; with `merged` texts also plain text of displays and results, and tracebacks. */
  pieces: OutputPiece[]
  stdout: string
  stderr: string
  omittedBytes: number
  /** What the code displayed or returned, other than plain text, in order. */
  displays: { data: Display; isResult: boolean }[]
  ended: CallEnded
}

/** Displays of one call that are kept, and their size together. */
const displaysMax = 64
const displayMaxBytes = 16 * 1024 * 1024

/**
 * Reads a call to its end.
 * @param limitBytes output that is kept of each half; the rest is counted.
 * @param texts `merged`: displays, results and tracebacks are part of the output, as a terminal shows them.
 */
export async function collectCall(
  events: AsyncGenerator<CallEvent, void, undefined>,
  limitBytes: number,
  texts: 'merged' | 'apart' = 'merged',
): Promise<CollectedCall> {
  const fold = new CommandOutputFold(limitBytes * 2)
  const displays: CollectedCall['displays'] = []
  let displayBytes = 0
  let seq = 0
  const write = (stream: 'stdout' | 'stderr', text: string) =>
    fold.add({ kind: 'output', seq: ++seq, stream, bytes: Buffer.from(text.endsWith('\n') ? text : `${text}\n`) })
  for await (const event of events) {
    switch (event.kind) {
      case 'output':
      case 'gap':
        fold.add({ ...event, seq: ++seq })
        break
      case 'display': {
        const { data, isResult } = event
        const text = data['text/plain']
        if (texts === 'merged' && typeof text === 'string') write('stdout', text)
        displayBytes += sizeOf(data)
        if (displays.length < displaysMax && displayBytes <= displayMaxBytes) displays.push({ data, isResult })
        break
      }
      case 'ended': {
        if (texts === 'merged' && event.ending.kind === 'raised') write('stderr', event.ending.traceback)
        return { ...fold.end(), displays, ended: event }
      }
    }
  }
  throw new Error('the events of a call stopped before its ending')
}

const sizeOf = (data: Display): number =>
  Object.values(data).reduce((sum, value) => sum + (typeof value === 'string' ? value.length : value.length), 0)
