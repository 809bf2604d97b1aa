import type { Stream } from '../../../base/run.ts'
import type { ProcessEvent } from '../../../base/sandbox.ts'
import { StreamDecoder } from '../../../core/runs/stream-decoder.ts'
import type { CommandOutput } from '../../../core/sandboxes/command-output.ts'
import { line, type OutputEncoding } from '../output-lines.ts'
import { processEndingOnTheWire } from './schemas.ts'

export const outputOnTheWire = ({ stdout, stderr, pieces, omittedBytes }: CommandOutput) => ({
  ...{ stdout, stderr, output: pieces, omitted_bytes: omittedBytes },
})

/** Returns a function that turns the events of a process into lines of JSON. */
export function processLines(encoding: OutputEncoding): (event: ProcessEvent) => string {
  const decoder = new StreamDecoder()
  return (event) => {
    const { kind, seq } = event
    if (kind !== 'ended' && event.stream === 'channel') return ''
    switch (kind) {
      case 'gap':
        return line({ type: 'gap', seq, stream: event.stream, bytes: event.bytes })
      case 'ended': {
        const rests = (['stdout', 'stderr'] as const).map((stream) => textLine(stream, seq, decoder.flush(stream)))
        return [...rests, line({ type: 'ended', seq, ending: processEndingOnTheWire(event.ending) })].join('')
      }
      case 'output': {
        const stream = event.stream as Stream
        if (encoding === 'text') return textLine(stream, seq, decoder.add(stream, event.bytes))
        return line({ type: stream, seq, data_base64: Buffer.from(event.bytes).toString('base64') })
      }
    }
  }
}

const textLine = (type: Stream, seq: number, data: string): string => (data === '' ? '' : line({ type, seq, data }))
