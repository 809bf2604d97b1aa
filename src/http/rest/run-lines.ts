import type { ExecuteEvent } from '../../core/execute.ts'
import { Fold } from '../../core/fold.ts'
import { LiveText } from '../../core/live-text.ts'
import { toExecution } from './execution.ts'

export type OutputEncoding = 'text' | 'base64'

/** The events of one run as lines of JSON; the last one is the whole execution. */
export class RunLines {
  readonly #fold = new Fold()
  readonly #live = new LiveText()
  readonly #accepted: Extract<ExecuteEvent, { kind: 'accepted' }>
  readonly #encoding: OutputEncoding

  constructor(accepted: Extract<ExecuteEvent, { kind: 'accepted' }>, encoding: OutputEncoding) {
    this.#accepted = accepted
    this.#encoding = encoding
    this.#fold.add(accepted)
  }

  /** Tells the id, so that a client can cancel from the first line on. */
  opening(): string {
    return line({ type: 'status', seq: 0, status: 'running', trace_id: this.#accepted.runId })
  }

  /** @returns one or more lines, or nothing where an event says nothing by itself. */
  add(event: ExecuteEvent): string {
    this.#fold.add(event)
    switch (event.kind) {
      case 'accepted':
      case 'running':
        return ''
      case 'output':
        return this.#output(event)
      case 'gap':
        return (
          this.#rest(event.stream, event.seq) +
          line({ type: 'gap', seq: event.seq, stream: event.stream, bytes: event.bytes })
        )
      case 'recorded':
        return line({ type: 'result', ...this.#execution() })
      case 'ended': {
        const rest = this.#rest('stdout', event.seq) + this.#rest('stderr', event.seq)
        return rest + line({ type: 'result', seq: event.seq, ...this.#execution() })
      }
    }
  }

  #execution(): object {
    return toExecution(this.#fold.finish(), this.#accepted.createdAt, 'streaming')
  }

  #output({ stream, seq, bytes }: Extract<ExecuteEvent, { kind: 'output' }>): string {
    if (this.#encoding === 'base64') {
      return line({ type: stream, seq, data_base64: Buffer.from(bytes).toString('base64') })
    }
    const data = this.#live.add(stream, bytes)
    return data === '' ? '' : line({ type: stream, seq, data })
  }

  #rest(stream: 'stdout' | 'stderr', seq: number): string {
    const data = this.#live.flush(stream)
    return data === '' ? '' : line({ type: stream, seq, data })
  }
}

const line = (value: object): string => `${JSON.stringify(value)}\n`
