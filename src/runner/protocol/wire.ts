import type { Socket } from 'node:net'
import { maxMessageBytes } from './messages.ts'

/** The other end broke the framing; the connection is of no further use. */
export class WireError extends Error {
  constructor(problem: string) {
    super(problem)
    this.name = 'WireError'
  }
}

export interface Message {
  header: unknown
  payload: Buffer
}

const prefixBytes = 8

/** One message as the bytes that go on the socket. The payload parts are not copied together first. */
export function encodeMessage(header: object, ...payload: readonly Uint8Array[]): Buffer {
  const json = Buffer.from(JSON.stringify(header))
  const prefix = Buffer.allocUnsafe(prefixBytes)
  const payloadBytes = payload.reduce((sum, part) => sum + part.length, 0)
  prefix.writeUInt32BE(json.length + payloadBytes, 0)
  prefix.writeUInt32BE(json.length, 4)
  return Buffer.concat([prefix, json, ...payload])
}

/**
 * What a payload holds, to be kept: itself where it is most of the buffer that it is a view into, otherwise a copy, so
 * that a small piece does not pin a large one.
 */
export const kept = (payload: Buffer): Buffer =>
  payload.length * 2 > payload.buffer.byteLength ? payload : Buffer.from(payload)

/** Writes a message. Those of one turn of the event loop are one write to the kernel: each can wake the other process. */
export function writeCollected(socket: Socket, message: Uint8Array): void {
  if (socket.writableCorked === 0) {
    socket.cork()
    process.nextTick(() => socket.uncork())
  }
  socket.write(message)
}

/** Writes one message, a large payload without copying it: it must not change any more. */
export function writeLarge(socket: Socket, header: object, payload: Uint8Array): void {
  const json = Buffer.from(JSON.stringify(header))
  const head = Buffer.allocUnsafe(prefixBytes + json.length)
  head.writeUInt32BE(json.length + payload.length, 0)
  head.writeUInt32BE(json.length, 4)
  head.set(json, prefixBytes)
  socket.cork()
  socket.write(head)
  socket.write(payload)
  socket.uncork()
}

/** Cuts a byte stream into messages. Holds at most one message that is not complete yet. */
export class MessageReader {
  #chunks: Buffer[] = []
  #bytes = 0

  /**
   * @returns the messages that `chunk` completed, in order.
   * @throws WireError where the stream breaks the framing; nothing after that can be read.
   */
  push(chunk: Buffer): Message[] {
    this.#chunks.push(chunk)
    this.#bytes += chunk.length
    const messages: Message[] = []
    for (let size = this.#frameBytes(); size !== undefined && this.#bytes >= size; size = this.#frameBytes()) {
      messages.push(decode(this.#take(size)))
    }
    return messages
  }

  #frameBytes(): number | undefined {
    if (this.#bytes < prefixBytes) return undefined
    const first = this.#joined()
    const bodyBytes = first.readUInt32BE(0)
    if (bodyBytes > maxMessageBytes) throw new WireError(`a message of ${bodyBytes} bytes exceeds ${maxMessageBytes}`)
    return prefixBytes + bodyBytes
  }

  /** Joins only when the prefix itself is split, so that a large body is joined once. */
  #joined(): Buffer {
    const first = this.#chunks[0]!
    if (first.length >= prefixBytes) return first
    this.#chunks = [Buffer.concat(this.#chunks)]
    return this.#chunks[0]!
  }

  #take(size: number): Buffer {
    const whole = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks)
    this.#bytes -= size
    this.#chunks = this.#bytes > 0 ? [whole.subarray(size)] : []
    return whole.subarray(0, size)
  }
}

function decode(frame: Buffer): Message {
  const headerBytes = frame.readUInt32BE(4)
  if (headerBytes > frame.length - prefixBytes) throw new WireError('a header is longer than its message')
  const json = frame.subarray(prefixBytes, prefixBytes + headerBytes)
  try {
    return { header: JSON.parse(json.toString()), payload: frame.subarray(prefixBytes + headerBytes) }
  } catch {
    throw new WireError('a header is not JSON')
  }
}
