import { connect, type Socket } from 'node:net'

/**
 * Sends bytes unchanged and reads until the server closes, or for at most `limitMs`. For requests that no client
 * library would send.
 */
export async function sendRaw(port: number, request: string | Uint8Array, limitMs = 5_000): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  const timer = setTimeout(() => socket.destroy(), limitMs)
  const pieces: Buffer[] = []
  try {
    socket.write(request)
    for await (const piece of socket) pieces.push(piece as Buffer)
  } catch {
    // Reset by the server: the response until then is returned.
  } finally {
    clearTimeout(timer)
  }
  return Buffer.concat(pieces).toString('utf8')
}

/** A request with exactly these headers; the server closes the connection after its response. */
export function rawRequest(method: string, path: string, headers: Record<string, string>, body = ''): string {
  const all = { 'content-length': `${Buffer.byteLength(body)}`, connection: 'close', ...headers }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`
}

export const statusOf = (response: string): number => Number(/^HTTP\/1\.1 (\d{3})/.exec(response)?.[1] ?? 0)

/** One connection on which a test sends bytes and reads responses itself. */
export class RawConnection {
  readonly #socket: Socket
  #received = Buffer.alloc(0)
  #closed = false
  #wake = () => {}

  /** @param allowHalfOpen whether to continue sending after the server has sent its end. */
  constructor(port: number, allowHalfOpen = false) {
    this.#socket = connect({ port, host: '127.0.0.1', allowHalfOpen })
    this.#socket.on('data', (piece) => {
      this.#received = Buffer.concat([this.#received, piece])
      this.#wake()
    })
    this.#socket.on('error', () => {
      // Reset by the server; `close` follows.
    })
    this.#socket.on('close', () => {
      this.#closed = true
      this.#wake()
    })
  }

  get isClosed(): boolean {
    return this.#closed
  }

  /** Sends bytes. @returns whether the kernel has taken them: false when the connection is closed. */
  async write(bytes: string | Uint8Array): Promise<boolean> {
    if (!this.#socket.writable) return false
    return new Promise((resolve) => this.#socket.write(bytes, (error) => resolve(!error)))
  }

  /** Reads one response with a Content-Length. @returns its head and body, or `undefined` when the connection is closed first. */
  async response(): Promise<{ status: number; head: string; body: string } | undefined> {
    for (;;) {
      const text = this.#received.toString('latin1')
      const headEnd = text.indexOf('\r\n\r\n')
      const head = text.slice(0, headEnd)
      const length = Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0)
      if (headEnd !== -1 && this.#received.length >= headEnd + 4 + length) {
        const body = this.#received.subarray(headEnd + 4, headEnd + 4 + length).toString()
        this.#received = this.#received.subarray(headEnd + 4 + length)
        return { status: statusOf(head), head, body }
      }
      if (this.#closed) return undefined
      await this.#next()
    }
  }

  /** Reads until `text` has arrived, or the connection is closed. @returns everything so far. */
  async until(text: string): Promise<string> {
    while (!this.#received.includes(text) && !this.#closed) await this.#next()
    return this.#received.toString()
  }

  async closed(): Promise<void> {
    while (!this.#closed) await this.#next()
  }

  /** Stops reading, as a client that is stuck does. */
  pause(): void {
    this.#socket.pause()
  }

  destroy(): void {
    this.#socket.destroy()
  }

  async #next(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve
    })
  }
}
