import { setTimeout as sleep } from 'node:timers/promises'
import { Pace } from './pace.ts'

/**
 * Output that is not returned is read at this rate for each organization, in bytes per second. Reading 1 MiB costs a process
 * about 2 ms of its event loop, which the calls of all others need as well.
 */
const bytesPerSecond = 64 * 1024 * 1024

/** Organizations whose rate is remembered: each uses it up within a tenth of a second. */
const ownersMax = 1_000

/**
 * BOUNDARY: slows programs down that print more than is kept. What is printed without end would otherwise be read as fast as
 * a processor can.
 */
export class OutputPace {
  readonly #paces = new Map<string, Pace>()

  /** @returns for how many milliseconds no more output of the organization should be read. */
  count(orgId: string, bytes: number): number {
    let pace = this.#paces.get(orgId)
    if (pace === undefined) {
      pace = new Pace()
      const [oldest] = this.#paces.keys()
      if (oldest !== undefined && this.#paces.size >= ownersMax) this.#paces.delete(oldest)
      this.#paces.set(orgId, pace)
    }
    return pace.count(bytes, bytesPerSecond)
  }

  /**
   * Yields events as they come, and waits where too much output comes with them.
   * @param freeBytes output before it counts: what the caller gets of it.
   */
  async *slow<Event extends { kind: string; bytes?: Uint8Array | number }>(
    events: AsyncIterable<Event>,
    orgId: string,
    freeBytes: number,
  ): AsyncGenerator<Event, void, undefined> {
    let totalBytes = 0
    for await (const event of events) {
      yield event
      if (!(event.bytes instanceof Uint8Array)) continue
      totalBytes += event.bytes.length
      const waitMs = totalBytes > freeBytes ? this.count(orgId, event.bytes.length) : 0
      if (waitMs > 0) await sleep(waitMs)
    }
  }
}
