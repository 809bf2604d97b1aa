/** The frames of kernels, as guest/kernels/PROTOCOL.md specifies them. */

export interface Frame {
  kind: string
  nonce: string
  payload: Buffer
}

/** Largest payload of a frame from a kernel, in bytes: the representations of one value, encoded. */
const payloadMaxBytes = 16 * 1024 * 1024

const headerMaxBytes = 80

interface Header {
  kind: string
  nonce: string
  length: number
  headerBytes: number
}

export function encodeFrame(kind: string, nonce: string, payload: Uint8Array = new Uint8Array()): Buffer {
  return Buffer.concat([Buffer.from(`${kind} ${nonce} ${payload.length}\n`), payload])
}

/**
 * BOUNDARY: reads the frames that a kernel sends; the code that it runs can send any bytes. Memory use is limited to one
 * frame of the maximum size.
 */
export class FrameReader {
  #chunks: Buffer[] = []
  #bytes = 0

  /** Of the frame that is awaited; undefined while it is incomplete. */
  #header: Header | undefined

  /** Size of the part of a frame that has arrived. */
  get heldBytes(): number {
    return this.#bytes
  }

  /** Forgets what has arrived; what follows is no frame. */
  drop(): void {
    this.#restart(Buffer.alloc(0))
  }

  /** @returns the frames that are complete, each read when it is taken. @throws Error if the bytes are no frame. */
  add(bytes: Uint8Array): Iterable<Frame> {
    this.#receive(bytes)
    return this.#complete()
  }

  *#complete(): Generator<Frame, void, undefined> {
    for (let frame = this.#next(); frame !== undefined; frame = this.#next()) yield frame
  }

  /** Drops what is received up to and including a text. @returns whether the text was found. */
  skipPast(text: string, bytes: Uint8Array): boolean {
    this.#receive(bytes)
    const all = this.#joined()
    const at = all.indexOf(text)
    // What precedes can be part of a frame; a text that is received in two parts is found with the second one.
    this.#restart(all.subarray(at < 0 ? Math.max(all.length - text.length, 0) : at + text.length))
    return at >= 0
  }

  #receive(bytes: Uint8Array): void {
    this.#chunks.push(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength))
    this.#bytes += bytes.length
  }

  #next(): Frame | undefined {
    this.#header ??= this.#parseHeader()
    if (!this.#header) return undefined
    const { kind, nonce, length, headerBytes } = this.#header
    if (this.#bytes < headerBytes + length) return undefined
    const all = this.#joined()
    const payload = all.subarray(headerBytes, headerBytes + length)
    this.#restart(all.subarray(headerBytes + length))
    return { kind, nonce, payload }
  }

  #parseHeader(): Header | undefined {
    if (this.#bytes === 0) return undefined
    const start = this.#joined()
    const end = start.indexOf('\n')
    if (end < 0 && start.length <= headerMaxBytes) return undefined
    const match = /^([a-z]{1,16}) ([0-9a-z]{1,32}) (\d{1,9})$/.exec(start.toString('latin1', 0, Math.max(end, 0)))
    if (!match) throw new Error('a kernel sent bytes that are not a frame')
    const [, kind = '', nonce = '', digits] = match
    const length = Number(digits)
    if (length > payloadMaxBytes) throw new Error(`a kernel sent a frame of ${length} bytes`)
    return { kind, nonce, length, headerBytes: end + 1 }
  }

  #joined(): Buffer {
    if (this.#chunks.length > 1) this.#chunks = [Buffer.concat(this.#chunks)]
    return this.#chunks[0] ?? Buffer.alloc(0)
  }

  #restart(rest: Buffer): void {
    this.#chunks = rest.length > 0 ? [rest] : []
    this.#bytes = rest.length
    this.#header = undefined
  }
}
