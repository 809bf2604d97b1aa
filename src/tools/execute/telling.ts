import type { ExecuteEvent } from '../../core/execute.ts'
import { LiveText } from '../../core/live-text.ts'
import type { ToolContext } from '../tool.ts'

/**
 * Tells a client what a run prints, at the client's speed. The run and its row never wait for that: what comes while
 * the client is still taking something is told next, in one piece. At most as much is held as is kept of a run's output.
 */
export class Telling {
  readonly #progress: NonNullable<ToolContext['progress']>
  readonly #live = new LiveText()
  #waiting = ''
  #going: Promise<void> | undefined

  constructor(progress: NonNullable<ToolContext['progress']>) {
    this.#progress = progress
  }

  add(event: ExecuteEvent): void {
    this.#waiting += textOf(event, this.#live)
    if (this.#waiting !== '') this.#going ??= this.#tell()
  }

  /** Resolves when the client has taken everything, or is gone. */
  async settled(): Promise<void> {
    await this.#going
  }

  async #tell(): Promise<void> {
    while (this.#waiting !== '') {
      const message = this.#waiting
      this.#waiting = ''
      await this.#progress({ message })
    }
    this.#going = undefined
  }
}

/** What of an event is worth telling while the run goes on. */
function textOf(event: ExecuteEvent, live: LiveText): string {
  switch (event.kind) {
    case 'accepted':
    case 'recorded':
    case 'running':
      return ''
    case 'output':
      return live.add(event.stream, event.bytes)
    case 'gap':
      return `${live.flush(event.stream)}\n[… ${event.bytes} bytes left out …]\n`
    case 'ended':
      return live.flush('stdout') + live.flush('stderr')
  }
}
