import type { Readable, Writable } from 'node:stream'

/**
 * Copies bytes at the speed of the receiver. At the end of the source it half-closes the receiver; the other direction
 * stays open.
 * @param count called for each piece; returns for how long no more may be read, in milliseconds. When it throws, both ends
 * are destroyed.
 * @param failed is called in place of that.
 */
export function pump(
  from: Readable,
  to: Writable,
  count: (bytes: number, piece: Buffer) => number,
  failed?: (error: unknown) => void,
): void {
  let isFull = false
  let isLate = false
  const resumeReading = () => {
    if (!isFull && !isLate) from.resume()
  }
  to.on('drain', () => {
    isFull = false
    resumeReading()
  })
  from.on('data', (piece: Buffer) => {
    let waitMs: number
    try {
      waitMs = count(piece.length, piece)
    } catch (error) {
      from.removeAllListeners('data')
      if (failed !== undefined) return failed(error)
      from.destroy()
      to.destroy()
      return
    }
    isFull = !to.write(piece) || isFull
    if (waitMs >= 1) {
      isLate = true
      setTimeout(() => {
        isLate = false
        resumeReading()
      }, waitMs).unref()
    }
    if (isFull || isLate) from.pause()
  })
  from.on('end', () => to.end())
  resumeReading()
}
