import { CoalescingWriter } from '../../core/runs/coalescing-writer.ts'
import type { ExecuteEvent } from '../../core/runs/execute-event.ts'
import { StreamDecoder } from '../../core/runs/stream-decoder.ts'
import type { ToolContext } from '../tool.ts'

/** Reports the output of a run to a client at the client's speed; the run and its row never wait for the client. */
export class ProgressReporter {
  readonly #decoder = new StreamDecoder()
  readonly #writer: CoalescingWriter

  constructor(progress: NonNullable<ToolContext['progress']>) {
    this.#writer = new CoalescingWriter((message) => progress({ message }))
  }

  add(event: ExecuteEvent): void {
    switch (event.kind) {
      case 'accepted':
      case 'recorded':
      case 'running':
      case 'image':
        return
      case 'output':
        this.#writer.add(this.#decoder.add(event.stream, event.bytes))
        return
      case 'gap':
        this.#writer.add(`${this.#decoder.flush(event.stream)}\n[… ${event.bytes} bytes left out …]\n`)
        return
      case 'ended':
        this.#writer.add(this.#decoder.flush('stdout') + this.#decoder.flush('stderr'))
    }
  }

  /** Resolves when the client has taken everything or is gone. */
  settled(): Promise<void> {
    return this.#writer.settled()
  }
}
