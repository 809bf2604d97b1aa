import type { ExecuteEvent } from '../../core/execute.ts'
import { LiveText } from '../../core/live-text.ts'
import { PacedText } from '../../core/paced-text.ts'
import type { ToolContext } from '../tool.ts'

/** Tells a client what a run prints, at the client's speed; the run and its row never wait for that. */
export class Telling {
  readonly #live = new LiveText()
  readonly #text: PacedText

  constructor(progress: NonNullable<ToolContext['progress']>) {
    this.#text = new PacedText((message) => progress({ message }))
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
function textOf(event: ExecuteEvent, live: LiveText): string {
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
