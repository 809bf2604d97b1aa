import type { ServerResponse } from 'node:http'

/** A quarter of the minute after which common proxies and clients close a silent connection. */
const keepAliveMs = 15_000

/** A client that does not read a single piece in this time is disconnected; what it was reading continues. */
const stallMs = 30_000

/** Small enough that a slow client reads one well within `stallMs`. */
const pieceCharacters = 32 * 1024

interface KeepAliveOptions {
  afterMs?: number
  when?: () => boolean
}

/**
 * Writes to one client as fast as it reads, and buffers at most one piece. After the client disconnects everything is
 * dropped.
 */
export class Writer {
  readonly #response: ServerResponse
  readonly #stallMs: number
  #keepAlive: NodeJS.Timeout | undefined

  /**
   * @param response whose headers are written already.
   * @param stallTimeoutMs after which a client that does not read is disconnected.
   */
  constructor(response: ServerResponse, stallTimeoutMs = stallMs) {
    this.#response = response
    this.#stallMs = stallTimeoutMs
    response.on('error', () => {
      // The client disconnected; `gone` is true.
    })
  }

  get gone(): boolean {
    return this.#response.destroyed || this.#response.writableEnded
  }

  /** Writes `text` after every `afterMs` of silence, until the end. @param when whether it can be written now. */
  keepAlive(text: string | (() => string), { afterMs = keepAliveMs, when = () => true }: KeepAliveOptions = {}): this {
    this.#keepAlive = setInterval(() => {
      if (!this.gone && !this.#response.writableNeedDrain && when())
        this.#response.write(typeof text === 'string' ? text : text())
    }, afterMs).unref()
    this.#response.once('close', () => clearInterval(this.#keepAlive))
    return this
  }

  /** Writes text. Resolves when there is room for more, or the client is gone. */
  async write(text: string): Promise<void> {
    for (let at = 0; at < text.length && !this.gone; ) {
      const end = endOfPiece(text, at)
      this.#keepAlive?.refresh()
      if (!this.#response.write(text.slice(at, end))) await this.#room()
      at = end
    }
  }

  /** Writes bytes, in one piece. Resolves like `write`. */
  async writeBytes(bytes: Uint8Array): Promise<void> {
    if (!this.gone && !this.#response.write(bytes)) await this.#room()
  }

  /** Writes bytes, in one piece. @returns whether there is room for more. */
  offer(bytes: Uint8Array): boolean {
    this.#keepAlive?.refresh()
    return this.gone || this.#response.write(bytes)
  }

  /** Resolves when there is room for more, or the client is gone. Disconnects a client that reads nothing for too long. */
  room(): Promise<void> {
    return this.#room()
  }

  end(): void {
    clearInterval(this.#keepAlive)
    if (!this.gone) this.#response.end()
  }

  async #room(): Promise<void> {
    if (!this.#response.writableNeedDrain || this.gone) return
    await new Promise<void>((resolve) => {
      const settle = () => {
        clearTimeout(stalled)
        this.#response.off('drain', settle).off('close', settle)
        resolve()
      }
      const stalled = setTimeout(() => this.#response.destroy(), this.#stallMs)
      this.#response.on('drain', settle).on('close', settle)
    })
  }
}

/** Returns where a piece ends, never between two surrogates. */
function endOfPiece(text: string, start: number): number {
  const end = start + pieceCharacters
  const code = text.charCodeAt(end - 1)
  return code >= 0xd800 && code <= 0xdbff ? end + 1 : end
}
