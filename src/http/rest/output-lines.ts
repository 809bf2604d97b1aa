import { escapeLineBreaks } from '../../base/json.ts'
import type { Stream } from '../../base/run.ts'
import type { OutputEvent } from '../../core/runs/output-order.ts'
import { StreamDecoder } from '../../core/runs/stream-decoder.ts'
import { imageOnTheWire } from './execution.ts'

export type OutputEncoding = 'text' | 'base64'

/** Turns the output of a run into lines of JSON. */
export class OutputLines {
  readonly #live = new StreamDecoder()
  readonly #encoding: OutputEncoding
  readonly #afterSeq: number

  /** @param afterSeq output up to this seq is skipped: its reader has it. */
  constructor(encoding: OutputEncoding, afterSeq = 0) {
    this.#encoding = encoding
    this.#afterSeq = afterSeq
  }

  /** Returns zero or more lines. Bytes of an incomplete character wait for the rest of it. */
  add(event: OutputEvent): string {
    const { seq } = event
    if (event.kind === 'image') {
      return seq > this.#afterSeq ? line({ type: 'image', seq, ...imageOnTheWire(event) }) : ''
    }
    const { stream } = event
    if (event.kind === 'gap') {
      const rest = this.rest(stream, seq)
      return seq > this.#afterSeq ? rest + line({ type: 'gap', seq, stream, bytes: event.bytes }) : ''
    }
    const knownBytes = Math.max(event.bytes.length - Math.max(seq - this.#afterSeq, 0), 0)
    const added = event.bytes.subarray(knownBytes)
    if (this.#encoding === 'base64') {
      if (added.length === 0) return ''
      return line({ type: stream, seq, data_base64: Buffer.from(added).toString('base64') })
    }
    // A character that begins before `afterSeq` is sent whole: the line before it ended without that part.
    this.#live.add(stream, event.bytes.subarray(0, knownBytes))
    const data = this.#live.add(stream, added)
    return data === '' ? '' : line({ type: stream, seq, data })
  }

  /** Returns the line of an incomplete character at the end of a stream, or an empty string. */
  rest(stream: Stream, seq: number): string {
    const data = this.#live.flush(stream)
    return data === '' || seq <= this.#afterSeq ? '' : line({ type: stream, seq, data })
  }
}

export const line = (value: object): string => `${escapeLineBreaks(JSON.stringify(value))}\n`
