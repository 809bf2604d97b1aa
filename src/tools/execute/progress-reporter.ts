import { CoalescingWriter } from '../../core/runs/coalescing-writer.ts'
import type { ExecuteEvent } from '../../core/runs/execute.ts'
import { StreamDecoder } from '../../core/runs/stream-decoder.ts'
import type { ToolContext } from '../tool.ts'

/** Tells a client what a run prints, at the client's speed; the run and its row never wait for that. */
export class ProgressReporter {
  readonly #live = new StreamDecoder()
  readonly #text: CoalescingWriter

  constructor(progress: NonNullable<ToolContext['progress']>) {
    this.#text = new CoalescingWriter((message) => progress({ message }))
  }

  add(event: ExecuteEvent): void {
    this.#text.add(textOf(event, this.#live))
  }

  /** Resolves when the client has taken everything, or is gone. */
  settled(): Promise<void> {
    return this.#text.settled()
  }
}

/** What of an event is worth telling while the run goes on. */
function textOf(event: ExecuteEvent, live: StreamDecoder): string {
  switch (event.kind) {
    case 'accepted':
    case 'recorded':
    case 'running':
    case 'image':
      return ''
    case 'output':
      return live.add(event.stream, event.bytes)
    case 'gap':
      return `${live.flush(event.stream)}\n[… ${event.bytes} bytes left out …]\n`
    case 'ended':
      return live.flush('stdout') + live.flush('stderr')
  }
}
