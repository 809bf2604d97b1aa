import type { ServerResponse } from 'node:http'

/** A proxy or client that hears nothing for a minute hangs up; this is a quarter of that. */
const keepAliveMs = 15_000

/** A client that takes not even one piece in this time is let go; what it was reading goes on without it. */
const stallMs = 30_000

/** Small enough that a slow client that still reads takes one well within `stallMs`. */
const pieceCharacters = 32 * 1024

/**
 * Writes to one client at the client's speed. At most one text is held, whoever reads slowly or not at all; once the
 * client is gone everything is dropped.
 */
export class Writer {
  readonly #response: ServerResponse
  readonly #stallMs: number
  #keepAlive: NodeJS.Timeout | undefined

  /**
   * @param response its head is written already.
   * @param patienceMs for a client that takes nothing.
   */
  constructor(response: ServerResponse, patienceMs = stallMs) {
    this.#response = response
    this.#stallMs = patienceMs
    response.on('error', () => {
      // A client that went away; `gone` says so.
    })
  }

  get gone(): boolean {
    return this.#response.destroyed || this.#response.writableEnded
  }

  /** Says `text` whenever it has been silent for a while, until the end. */
  keepAlive(text: string, afterMs = keepAliveMs): this {
    this.#keepAlive = setInterval(() => {
      if (!this.gone && !this.#response.writableNeedDrain) this.#response.write(text)
    }, afterMs).unref()
    return this
  }

  /** Resolves when there is room for more, or the client is gone. */
  async write(text: string): Promise<void> {
    for (let at = 0; at < text.length && !this.gone; ) {
      const end = endOfPiece(text, at)
      this.#keepAlive?.refresh()
      if (!this.#response.write(text.slice(at, end))) await this.#room()
      at = end
    }
  }

  /** The same for bytes. They are handed on as they are. */
  async writeBytes(bytes: Uint8Array): Promise<void> {
    if (!this.gone && !this.#response.write(bytes)) await this.#room()
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

/** Never between the two halves of a character. */
function endOfPiece(text: string, start: number): number {
  const end = start + pieceCharacters
  const code = text.charCodeAt(end - 1)
  return code >= 0xd800 && code <= 0xdbff ? end + 1 : end
}
