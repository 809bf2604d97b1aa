import { type RunEvent, unknownLimits, unmeasured } from '../../base/run.ts'

/** Output that may be on its way to a reader or wait for it; a slow reader holds no more than this. */
const windowBytes = 256 * 1024
/** Small enough that the runner never waits while the reader does not, either. */
const grantBytes = windowBytes / 4

/** Following one run from the front: a bounded window between the socket and whoever reads. */
export class Attachment {
  readonly runId: string
  /** The request that made it; another one after a reconnect. */
  number = 0
  /** Last event that arrived. */
  seq: number
  readonly #grant: (bytes: number) => void
  readonly #waiting: RunEvent[] = []
  #unreadBytes = 0
  /** Read, and not told to the runner yet. */
  #owedBytes = 0
  #wake: (() => void) | undefined

  /** @param grant tells the runner that the reader has room for so many more bytes. */
  constructor(runId: string, afterSeq: number, grant: (bytes: number) => void) {
    this.runId = runId
    this.seq = afterSeq
    this.#grant = grant
  }

  /** Asks for the room that is left, what was read since the last grant included. */
  takeWindow(): number {
    this.#owedBytes = 0
    return Math.max(windowBytes - this.#unreadBytes, 1)
  }

  push(event: RunEvent): void {
    this.seq = event.seq
    if (event.kind === 'output' || event.kind === 'image') this.#unreadBytes += event.bytes.length
    this.#waiting.push(event)
    this.#wake?.()
  }

  /** The runner is gone, and the run with it; whoever started it knows its limits. */
  lost(): void {
    this.push({
      kind: 'ended',
      seq: this.seq + 1,
      result: unmeasured(unknownLimits, { kind: 'failed', reason: 'runner_lost' }),
    })
  }

  /** What arrives, in order, until the ending. */
  async *events(): AsyncGenerator<RunEvent, void, undefined> {
    for (;;) {
      const event = this.#waiting.shift()
      if (event === undefined) {
        await new Promise<void>((resolve) => (this.#wake = resolve))
        continue
      }
      if (event.kind === 'output' || event.kind === 'image') {
        this.#unreadBytes -= event.bytes.length
        this.#giveBack(event.bytes.length)
      }
      yield event
      if (event.kind === 'ended') return
    }
  }

  /** A message for each line that a program prints would cost more than the line: a share of the window at a time. */
  #giveBack(bytes: number): void {
    this.#owedBytes += bytes
    if (this.#owedBytes < grantBytes) return
    this.#grant(this.#owedBytes)
    this.#owedBytes = 0
  }
}
