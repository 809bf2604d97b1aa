import type { RunEvent, Stream } from '../../base/run.ts'
import { streams } from '../../base/run.ts'
import type { KeptOutput, KeptStream } from '../../store/store.ts'

/** An event of a run that is stored with its output. */
export type OutputEvent = Extract<RunEvent, { kind: 'output' | 'gap' | 'image' }>

/** Maximum number of stretches, more than a runner reports. Beyond this number the order is not stored. */
const stretchesMax = 131_072
/** Maximum size of one output event, in bytes. */
const pieceBytes = 64 * 1024

/** Encodes a stretch: `bytes * 4`, plus 2 for a gap, plus 1 for standard error. Exact up to 2 PiB. */
const toNumber = (stream: Stream, isGap: boolean, bytes: number): number =>
  bytes * 4 + (isGap ? 2 : 0) + (stream === 'stderr' ? 1 : 0)

/** Encodes an image between two stretches. No gap has zero bytes, so the number is unambiguous. */
const imageNumber = toNumber('stdout', true, 0)

/** Records the order of the output and images of a run, so that a replay has the same sequence numbers. */
export class OutputOrder {
  /** The sequence number before the first byte, then one number for each stretch. */
  readonly #numbers: number[] = []
  #whole = true

  add(event: OutputEvent): void {
    const bytes = typeof event.bytes === 'number' ? event.bytes : event.bytes.length
    const isOutput = event.kind === 'output'
    if (this.#numbers.length === 0) this.#numbers.push(event.seq - (isOutput ? bytes : 1))
    const last = this.#numbers.length - 1
    const added = event.kind === 'image' ? imageNumber : toNumber(event.stream, !isOutput, bytes)
    if (last > 0 && isOutput && this.#numbers[last]! % 4 === added % 4) this.#numbers[last]! += bytes * 4
    else if (this.#numbers.length <= stretchesMax) this.#numbers.push(added)
    else this.#whole = false
  }

  /** Returns the encoded order; `undefined` if it is empty or too long to store. */
  keep(): Uint8Array | undefined {
    if (!this.#whole || this.#numbers.length < 2) return undefined
    return new Uint8Array(Float64Array.from(this.#numbers).buffer)
  }
}

/**
 * Yields the stored output as the events of the live run. Without a stored order, yields one stream after the other.
 * @returns the last sequence number.
 */
export function* replay({ stdout, stderr, images, order }: KeptOutput): Generator<OutputEvent, number, undefined> {
  const [first = 0, ...stretches] = order
    ? readNumbers(order)
    : [1, ...inTurn({ stdout, stderr }), ...images.map(() => imageNumber)]
  const shown = images.values()
  const read = { stdout: 0, stderr: 0 }
  let seq = first
  for (const number of stretches) {
    const stream = streams[number % 2 === 1 ? 1 : 0]!
    const bytes = Math.floor(number / 4)
    if (number === imageNumber) {
      seq += 1
      const { value: image } = shown.next()
      if (image) yield { kind: 'image', seq, ...image }
    } else if (number % 4 >= 2) {
      seq += 1
      yield { kind: 'gap', seq, stream, bytes }
    } else {
      yield* stretch({ stdout, stderr }[stream], stream, read[stream], bytes, seq)
      seq += bytes
    }
    read[stream] += bytes
  }
  return seq
}

const readNumbers = (order: Uint8Array): number[] => [...new Float64Array(Uint8Array.from(order).buffer)]

const inTurn = (kept: Record<Stream, KeptStream>): number[] =>
  streams.flatMap((stream) => {
    const { head, omittedBytes, tail } = kept[stream]
    const numbers = [toNumber(stream, false, head.length), toNumber(stream, true, omittedBytes)]
    return [...numbers, toNumber(stream, false, tail.length)].filter((number) => number >= 4)
  })

/**
 * Yields a range of one stream as events; bytes that are not stored are yielded as a gap.
 * @param seq the sequence number before the range.
 */
function* stretch(
  { head, omittedBytes, tail }: KeptStream,
  stream: Stream,
  offset: number,
  bytes: number,
  seq: number,
): Generator<OutputEvent, void, undefined> {
  const parts = [head, omittedBytes, tail]
  let partStart = 0
  for (const part of parts) {
    const partBytes = typeof part === 'number' ? part : part.length
    const from = Math.max(offset, partStart)
    const until = Math.min(offset + bytes, partStart + partBytes)
    for (let at = from; at < until; ) {
      const end = typeof part === 'number' ? until : Math.min(until, at + pieceBytes)
      const place = { seq: seq + end - offset, stream }
      if (typeof part === 'number') yield { kind: 'gap', ...place, bytes: end - at }
      else yield { kind: 'output', ...place, bytes: part.subarray(at - partStart, end - partStart) }
      at = end
    }
    partStart += partBytes
  }
}
