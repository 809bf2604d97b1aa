import { Refusal } from '../../base/errors.ts'

/** Largest reply: an image of 5 MiB in base64 has 6.7 MiB. */
const frameMaxBytes = 16 * 1024 * 1024
const headerBytes = 4

/** Returns a frame: the length in four bytes, big-endian, and the text in UTF-8. */
export function encodeFrame(text: string): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + Buffer.byteLength(text))
  frame.writeUInt32BE(frame.length - headerBytes, 0)
  frame.write(text, headerBytes)
  return frame
}

/**
 * Yields the frames of a stream of bytes.
 * BOUNDARY: the sender is a process in a sandbox, which can send anything.
 * @throws Refusal `workspace_failed` for a frame that is too long.
 */
export async function* decodeFrames(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  let parts: Uint8Array[] = []
  let held = 0
  for await (const piece of bytes) {
    parts.push(piece)
    held += piece.length
    while (held >= headerBytes) {
      if (parts[0]!.length < headerBytes) parts = [Buffer.concat(parts)]
      const first = Buffer.from(parts[0]!.buffer, parts[0]!.byteOffset, parts[0]!.length)
      const end = headerBytes + first.readUInt32BE(0)
      if (end > headerBytes + frameMaxBytes) {
        throw new Refusal('workspace_failed', { reason: `a reply is larger than ${frameMaxBytes} bytes` })
      }
      if (held < end) break
      const all = parts.length === 1 ? first : Buffer.concat(parts)
      yield all.toString('utf8', headerBytes, end)
      const rest = all.subarray(end)
      parts = rest.length > 0 ? [rest] : []
      held = rest.length
    }
  }
}
