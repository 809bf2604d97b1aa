import type { Readable } from 'node:stream'
import { Pace } from './pace.ts'

/** Larger pieces are passed on as they are. */
export const smallBytes = 1024
const joinedBytes = 16 * 1024
/** Pieces of one turn of the event loop after which their stream waits. A program that writes lines sends fewer. */
export const perTurn = 256
/** Beyond that, of all streams of a process together: a tenth of a processor. Each costs about a microsecond. */
const perSecond = 100_000

const pace = new Pace()

/** Counts the small pieces of a stream in one turn. @returns for how many milliseconds the stream must wait after it. */
export const waitAfter = (pieces: number): number => (pieces > perTurn ? pace.count(pieces, perSecond) : 0)

/**
 * BOUNDARY: joins the small pieces that arrive in one turn of the event loop, and slows a stream of many of them down. The
 * other side of HTTP decides on the size of chunks: of one byte each, 3 MiB are 3 million buffers, which take 1 GB of memory
 * and 14 s of the event loop.
 * @param stream of an HTTP message, before its first piece; its source must obey what `push` returns.
 */
export function joinSmallPieces(stream: Readable): void {
  const push = stream.push.bind(stream)
  const read = stream._read.bind(stream)
  let pieces = 0
  let held: Buffer | undefined
  let heldBytes = 0
  let isHeldBack = false
  let hasEnded = false

  const flush = () => {
    if (held === undefined) return
    const joined = held.subarray(0, heldBytes)
    held = undefined
    heldBytes = 0
    push(joined)
  }
  const release = () => {
    isHeldBack = false
    if (!hasEnded && !stream.destroyed) read(0)
  }
  const endTurn = () => {
    const waitMs = waitAfter(pieces)
    pieces = 0
    if (stream.destroyed) return
    flush()
    if (isHeldBack) setTimeout(release, waitMs).unref()
  }

  stream._read = (size) => {
    if (!isHeldBack) read(size)
  }
  stream.push = (piece: Buffer | null, encoding?: BufferEncoding) => {
    hasEnded ||= piece === null
    if (piece === null || piece.length >= smallBytes) {
      flush()
      return push(piece, encoding)
    }
    pieces += 1
    if (pieces === 1) {
      setImmediate(endTurn)
      return push(piece, encoding)
    }
    held ??= Buffer.allocUnsafe(joinedBytes)
    heldBytes += piece.copy(held, heldBytes)
    if (heldBytes > joinedBytes - smallBytes) flush()
    isHeldBack ||= pieces > perTurn
    return !isHeldBack && stream.readableLength + heldBytes < stream.readableHighWaterMark
  }
}
