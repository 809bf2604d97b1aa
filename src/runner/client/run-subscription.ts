import { AsyncQueue } from '../../base/async-queue.ts'
import { imageBounds, type RunEvent, unknownLimits, unmeasured } from '../../base/run.ts'

/** Output that may be in flight to a reader or wait for it, in bytes; a slow reader holds no more than this. */
const windowBytes = 256 * 1024
/** Credit is returned in this unit, so that the runner never waits while the reader does not. */
const creditUnitBytes = windowBytes / 4
/** The runner sends while any credit is left, so that images may exceed the window. */
const queueBytes = windowBytes + imageBounds.bytes

interface SubscriptionLink {
  /** Grants the runner credit for more output. */
  grant(bytes: number): void
  /** Called when the reader stops before the ending. */
  abandoned(): void
}

/** Follows one run for one reader, with a bounded window of output between the socket and the reader. */
export class RunSubscription {
  readonly runId: string
  /** The events, up to and including the ending. */
  readonly events: AsyncQueue<RunEvent>
  /** The request that attached it; changes with a reconnection. */
  number = 0
  /** Sequence number of the last event that arrived. */
  seq: number
  readonly #link: SubscriptionLink
  #unreadBytes = 0
  /** Bytes that were read and not yet returned as credit. */
  #owedBytes = 0

  constructor(runId: string, afterSeq: number, link: SubscriptionLink) {
    this.runId = runId
    this.seq = afterSeq
    this.#link = link
    this.events = new AsyncQueue<RunEvent>({
      capacity: queueBytes,
      sizeOf: bytesOf,
      onTake: (event) => this.#returnCredit(bytesOf(event)),
      onAbandon: () => link.abandoned(),
    })
  }

  /** Returns the credit to attach with; it includes what was read since credit was last returned. */
  takeWindow(): number {
    this.#owedBytes = 0
    return Math.max(windowBytes - this.#unreadBytes, 1)
  }

  /** BOUNDARY. @returns false when the runner sends more than it has credit for. */
  push(event: RunEvent): boolean {
    this.seq = event.seq
    this.#unreadBytes += bytesOf(event)
    const isAccepted = this.events.push(event)
    if (event.kind === 'ended') this.events.close()
    return isAccepted
  }

  /** Ends as `runner_lost`; the caller that started the run knows its limits. */
  lose(): void {
    this.push({
      kind: 'ended',
      seq: this.seq + 1,
      result: unmeasured(unknownLimits, { kind: 'failed', reason: 'runner_lost' }),
    })
  }

  /** One message per line of output would cost more than the line, so that credit is returned in larger units. */
  #returnCredit(bytes: number): void {
    this.#unreadBytes -= bytes
    this.#owedBytes += bytes
    if (this.#owedBytes < creditUnitBytes) return
    this.#link.grant(this.#owedBytes)
    this.#owedBytes = 0
  }
}

const bytesOf = (event: RunEvent): number =>
  event.kind === 'output' || event.kind === 'image' ? event.bytes.length : 0
