import { TextDecoder } from 'node:util'
import type { Stream } from '../../base/run.ts'

/** Decodes both streams of a run while they come: a character that is split between two events arrives whole. */
export class StreamDecoder {
  readonly #decoders: Record<Stream, TextDecoder> = { stdout: newDecoder(), stderr: newDecoder() }

  /** @returns the text that is complete so far; may be empty. */
  add(stream: Stream, bytes: Uint8Array): string {
    return this.#decoders[stream].decode(bytes, { stream: true })
  }

  /** Ends a stretch of adjacent bytes (a gap, the end). @returns U+FFFD for a character left incomplete, or nothing. */
  flush(stream: Stream): string {
    return this.#decoders[stream].decode()
  }
}

const newDecoder = (): TextDecoder => new TextDecoder('utf-8', { ignoreBOM: true })
