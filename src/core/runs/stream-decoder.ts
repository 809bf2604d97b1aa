import { TextDecoder } from 'node:util'
import type { Stream } from '../../base/run.ts'

/** Decodes the output streams of a run as they arrive. Joins characters that are split between two events. */
export class StreamDecoder {
  readonly #decoders: Record<Stream, TextDecoder> = { stdout: newDecoder(), stderr: newDecoder() }

  /** Adds bytes. @returns the complete characters so far; can be empty. */
  add(stream: Stream, bytes: Uint8Array): string {
    return this.#decoders[stream].decode(bytes, { stream: true })
  }

  /** Ends a stretch of adjacent bytes (a gap, the end). @returns U+FFFD for a character left incomplete, or nothing. */
  flush(stream: Stream): string {
    return this.#decoders[stream].decode()
  }
}

const newDecoder = (): TextDecoder => new TextDecoder('utf-8', { ignoreBOM: true })
