import { escapeLineBreaks } from '../base/json.ts'

const lineFeed = 0x0a
const carriageReturn = 0x0d

/** Returns one server-sent event: https://html.spec.whatwg.org/multipage/server-sent-events.html */
export const messageEvent = (json: string): string => `event: message\ndata: ${escapeLineBreaks(json)}\n\n`

/** Returns an event with a JSON-RPC error, for a request that got no response from the upstream. */
export const errorEvent = (id: string | number | undefined, code: number, message: string): string =>
  messageEvent(JSON.stringify({ jsonrpc: '2.0', id: id ?? null, error: { code, message } }))

/**
 * Detects whether a stream of server-sent events is between two events, where comments and events can be inserted. Lines
 * end with LF, CR or CRLF, and a piece may end between CR and LF.
 */
export class EventBoundary {
  /** Whether the current line is empty so far. */
  #isLineStart = true
  #isBetween = true
  #lastWasReturn = false

  get isBetween(): boolean {
    // Also between the CR and the LF of an empty line: what is inserted ends with an empty line, and one more has no effect.
    return this.#isBetween
  }

  /** Adds a piece of the stream. Only its last bytes determine the state. */
  add(piece: Uint8Array): void {
    for (let at = Math.max(piece.length - 4, 0); at < piece.length; at++) this.#addByte(piece[at]!)
  }

  #addByte(byte: number): void {
    if (byte === lineFeed && this.#lastWasReturn) {
      this.#lastWasReturn = false
      return
    }
    this.#lastWasReturn = byte === carriageReturn
    if (byte !== lineFeed && byte !== carriageReturn) {
      this.#isLineStart = false
      this.#isBetween = false
      return
    }
    this.#isBetween = this.#isLineStart
    this.#isLineStart = true
  }
}

/**
 * Ends an incomplete event, so that no client reads it as a message: clients ignore events of this type.
 */
export const discardPartialEvent = '\nevent: incomplete\n\n'

/** Wraps a JSON body into one event as it arrives. Replaces line breaks by spaces, since JSON strings contain none. */
export async function* asEvent(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): AsyncGenerator<string | Uint8Array, void, undefined> {
  yield 'event: message\ndata: '
  for await (const piece of body) {
    const line = Buffer.from(piece)
    for (let at = 0; at < line.length; at++) {
      if (line[at] === lineFeed || line[at] === carriageReturn) line[at] = 0x20
    }
    yield line
  }
  yield '\n\n'
}
