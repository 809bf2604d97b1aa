import type { AcceptedEvent, EndedEvent, ExecuteEvent, RecordedEvent } from '../../core/runs/execute-event.ts'
import { toTranscript } from '../../core/runs/transcript.ts'
import type { Asked } from '../../tools/execute/result.ts'
import { imageOnTheWire, toExecution } from './execution.ts'
import { line, type OutputEncoding, OutputLines } from './output-lines.ts'

/** Turns the events of one run into lines of JSON. The last line is the whole execution. */
export class RunLines {
  readonly #output: OutputLines
  readonly #accepted: AcceptedEvent
  readonly #asked: Asked

  constructor(accepted: AcceptedEvent, encoding: OutputEncoding, asked: Asked) {
    this.#asked = asked
    this.#accepted = accepted
    this.#output = new OutputLines(encoding)
  }

  /** Returns the first line. It has the id, so that a client can cancel the run. */
  opening(): string {
    return openingLine(this.#accepted.runId)
  }

  /** Returns zero or more lines. */
  add(event: ExecuteEvent): string {
    switch (event.kind) {
      case 'accepted':
      case 'running':
        return ''
      case 'output':
      case 'gap':
      case 'image':
        return this.#output.add(event)
      case 'recorded': {
        const images = (event.output?.images ?? []).map((image) => line({ type: 'image', ...imageOnTheWire(image) }))
        return images.join('') + line({ type: 'result', ...this.#execution(event) })
      }
      case 'ended': {
        const rest = this.#output.rest('stdout', event.seq) + this.#output.rest('stderr', event.seq)
        return rest + line({ type: 'result', seq: event.seq, ...this.#execution(event) })
      }
    }
  }

  #execution({ result, output, completedAt }: EndedEvent | RecordedEvent): object {
    const { runId, createdAt, deliveryMode } = this.#accepted
    return toExecution(toTranscript(runId, result, output), { createdAt, completedAt, deliveryMode }, this.#asked)
  }
}

export const openingLine = (runId: string): string =>
  line({ type: 'status', seq: 0, status: 'running', trace_id: runId })
