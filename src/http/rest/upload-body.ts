import type { IncomingMessage } from 'node:http'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'

/** How slow an upload may be: a client that is slower would hold what others need. */
export interface UploadPace {
  /** Average rate; 0 for none. */
  minBytesPerSecond: number
  /** Longest time that an upload may be behind that rate. */
  windowMs: number
}

/** Part of an upload that is received before anything waits for the rest. */
export const startBytes = 256 * 1024

/**
 * Yields the body as it arrives. Time in which the reader is busy does not count towards the rate.
 * @param sizeBytes exact length that is accepted, also without a Content-Length; `null` for a length that the client does
 * not announce.
 * @throws Refusal upload_too_large, upload_too_slow; upload_broken where it ends early.
 */
export async function* uploadBody(
  request: IncomingMessage,
  sizeBytes: number | null,
  { minBytesPerSecond, windowMs }: UploadPace,
): AsyncGenerator<Uint8Array, void, undefined> {
  let receivedBytes = 0
  let patienceMs = windowMs
  for (;;) {
    const piece = request.read() as Buffer | null
    if (piece !== null) {
      receivedBytes += piece.length
      if (sizeBytes !== null && receivedBytes > sizeBytes)
        throw new Refusal('upload_too_large', { givenBytes: receivedBytes, sizeBytes })
      if (minBytesPerSecond > 0)
        patienceMs = Math.min(windowMs, patienceMs + (piece.length * 1_000) / minBytesPerSecond)
      yield piece
      continue
    }
    if (request.readableEnded || request.destroyed) break
    const sinceMs = monotonicMs()
    if (!(await arrivesWithin(request, patienceMs))) throw new Refusal('upload_too_slow', { minBytesPerSecond })
    patienceMs -= minBytesPerSecond > 0 ? monotonicMs() - sinceMs : 0
  }
  // Of an unknown length, only whether all of it arrived is known.
  const isWhole = sizeBytes === null ? request.complete : receivedBytes === sizeBytes
  if (!isWhole) throw new Refusal('upload_broken', { receivedBytes, sizeBytes: sizeBytes ?? 'an unknown number of' })
}

/**
 * Waits for more of a body, or its end. No listener stays behind: with one on `readable`, nothing could drop the rest of
 * a body that was refused.
 */
function arrivesWithin(request: IncomingMessage, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (hasArrived: boolean) => {
      clearTimeout(timer)
      for (const event of events) request.off(event, arrived)
      resolve(hasArrived)
    }
    const arrived = () => settle(true)
    const timer = setTimeout(() => settle(false), Math.max(ms, 0))
    for (const event of events) request.on(event, arrived)
  })
}

const events = ['readable', 'end', 'close', 'error'] as const

/**
 * Receives the beginning of a body, so that a slow client holds no thread and no place of others meanwhile.
 * @returns the whole body.
 * @throws errors of the body, if it ends or fails before `bytesMax` have arrived.
 */
export async function withStart(
  body: AsyncGenerator<Uint8Array, void, undefined>,
  bytesMax: number,
): Promise<AsyncGenerator<Uint8Array, void, undefined>> {
  const start: Uint8Array[] = []
  for (let bytes = 0; bytes < bytesMax; ) {
    const { value, done } = await body.next()
    if (done) break
    start.push(value)
    bytes += value.length
  }
  return continued(start, body)
}

async function* continued(start: Uint8Array[], rest: AsyncGenerator<Uint8Array, void, undefined>) {
  for (let piece = start.shift(); piece; piece = start.shift()) yield piece
  yield* rest
}
