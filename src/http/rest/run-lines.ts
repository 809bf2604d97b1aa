import { timestamp } from '../../base/clock.ts'
import type { ExecuteEvent } from '../../core/runs/execute.ts'
import { Fold } from '../../core/runs/fold.ts'
import type { Asked } from '../../tools/execute/result.ts'
import { imageOnTheWire, toExecution } from './execution.ts'
import { line, type OutputEncoding, OutputLines } from './output-lines.ts'

/** The events of one run as lines of JSON; the last one is the whole execution. */
export class RunLines {
  readonly #fold = new Fold()
  readonly #output: OutputLines
  readonly #accepted: Extract<ExecuteEvent, { kind: 'accepted' }>
  readonly #asked: Asked

  constructor(accepted: Extract<ExecuteEvent, { kind: 'accepted' }>, encoding: OutputEncoding, asked: Asked) {
    this.#asked = asked
    this.#accepted = accepted
    this.#output = new OutputLines(encoding)
    this.#fold.add(accepted)
  }

  /** Tells the id, so that a client can cancel from the first line on. */
  opening(): string {
    return openingLine(this.#accepted.runId)
  }

  /** @returns one or more lines, or nothing where an event says nothing by itself. */
  add(event: ExecuteEvent): string {
    this.#fold.add(event)
    switch (event.kind) {
      case 'accepted':
      case 'running':
        return ''
      case 'output':
      case 'gap':
      case 'image':
        return this.#output.add(event)
      case 'recorded': {
        const images = event.transcript.images.map((image) => line({ type: 'image', ...imageOnTheWire(image) }))
        return images.join('') + line({ type: 'result', ...this.#execution() })
      }
      case 'ended': {
        const rest = this.#output.rest('stdout', event.seq) + this.#output.rest('stderr', event.seq)
        return rest + line({ type: 'result', seq: event.seq, ...this.#execution() })
      }
    }
  }

  #execution(): object {
    const { createdAt } = this.#accepted
    const how = { createdAt, completedAt: timestamp(), deliveryMode: 'streaming' } as const
    return toExecution(this.#fold.finish(), how, this.#asked)
  }
}

export const openingLine = (runId: string): string =>
  line({ type: 'status', seq: 0, status: 'running', trace_id: runId })
