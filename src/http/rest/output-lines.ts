import type { Stream } from '../../base/run.ts'
import type { OutputEvent } from '../../core/runs/output-order.ts'
import { StreamDecoder } from '../../core/runs/stream-decoder.ts'
import { imageOnTheWire } from './execution.ts'

export type OutputEncoding = 'text' | 'base64'

/** What a run prints as lines of JSON. */
export class OutputLines {
  readonly #live = new StreamDecoder()
  readonly #encoding: OutputEncoding
  readonly #afterSeq: number

  /** @param afterSeq nothing is told that its reader knows already: what came up to this number. */
  constructor(encoding: OutputEncoding, afterSeq = 0) {
    this.#encoding = encoding
    this.#afterSeq = afterSeq
  }

  /** @returns one or more lines, or nothing where the event says nothing by itself. */
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
    const news = event.bytes.subarray(knownBytes)
    if (this.#encoding === 'base64') {
      if (news.length === 0) return ''
      return line({ type: stream, seq, data_base64: Buffer.from(news).toString('base64') })
    }
    // A character whose beginning was known is told whole, since its reader was not given that part.
    this.#live.add(stream, event.bytes.subarray(0, knownBytes))
    const data = this.#live.add(stream, news)
    return data === '' ? '' : line({ type: stream, seq, data })
  }

  /** What is left of a stretch that ends with `seq`. */
  rest(stream: Stream, seq: number): string {
    const data = this.#live.flush(stream)
    return data === '' || seq <= this.#afterSeq ? '' : line({ type: stream, seq, data })
  }
}

export const line = (value: object): string => `${JSON.stringify(value)}\n`
