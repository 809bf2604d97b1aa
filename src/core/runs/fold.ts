import { imageBounds, type RunResult, type ShownImage, type Stream, streams } from '../../base/run.ts'
import type { KeptOutput, KeptStream } from '../../store/store.ts'
import type { ExecuteEvent } from './execute.ts'
import { OutputOrder } from './output-order.ts'

/** One stream of a finished run as text. */
export interface StreamText {
  /** Head and tail; where bytes are missing between them, a line of its own says how many. */
  text: string
  /** Written by the run, kept or not. */
  totalBytes: number
  /** Written but not in `text`. */
  omittedBytes: number
}

/** The buffered answer of a run. */
export interface Transcript {
  runId: string
  result: RunResult
  stdout: StreamText
  stderr: StreamText
  /** That it showed, in order. */
  images: readonly ShownImage[]
  /** What it printed was not kept, or is no longer: the texts are empty whatever it was. */
  outputLost: boolean
}

/**
 * Folds the events of one run to its buffered answer. Memory stays below six soft limits and the bounds of images, whatever
 * comes.
 */
export class Fold {
  #runId = ''
  #result: RunResult | undefined
  #recorded: Transcript | undefined
  #streams: Record<Stream, StreamFold> | undefined
  readonly #order = new OutputOrder()
  readonly #images: ShownImage[] = []

  add(event: ExecuteEvent): void {
    switch (event.kind) {
      case 'accepted': {
        const keptBytes = event.limits.outputSoftBytes
        this.#runId = event.runId
        this.#streams = { stdout: new StreamFold(keptBytes), stderr: new StreamFold(keptBytes) }
        return
      }
      case 'running':
        return
      case 'recorded':
        this.#recorded = event.transcript
        return
      case 'output':
        this.#order.add(event)
        this.#streams?.[event.stream].add(event.bytes)
        return
      case 'gap':
        this.#order.add(event)
        this.#streams?.[event.stream].skip(event.bytes)
        return
      case 'image':
        this.#order.add(event)
        if (this.#images.length < imageBounds.count) this.#images.push({ mimeType: event.mimeType, bytes: event.bytes })
        return
      case 'ended':
        this.#result = event.result
    }
  }

  /** @throws Error when the run has not ended yet. */
  finish(): Transcript {
    if (this.#recorded) return this.#recorded
    const result = this.#result
    if (result === undefined) throw new Error('the events of a run stopped before its ending')
    return toTranscript(this.#runId, result, this.keep())
  }

  /** What came so far, as it is kept. */
  keep(): KeptOutput {
    const kept = this.#streams
    const order = this.#order.keep()
    const [stdout, stderr] = [kept?.stdout.keep() ?? emptyStream, kept?.stderr.keep() ?? emptyStream]
    return { stdout, stderr, images: [...this.#images], ...(order && { order }) }
  }
}

const emptyStream: KeptStream = { head: new Uint8Array(0), omittedBytes: 0, tail: new Uint8Array(0) }

export const nothingKept: KeptOutput = { stdout: emptyStream, stderr: emptyStream, images: [] }

/** The buffered answer of a run that has ended. @param output `null` where it is lost. */
export function toTranscript(runId: string, result: RunResult, output: KeptOutput | null): Transcript {
  const texts = streams.map((stream) => {
    const writtenBytes = result.outputBytes[stream]
    return [stream, output ? toStreamText(output[stream], writtenBytes) : lostText(writtenBytes)] as const
  })
  const told = Object.fromEntries(texts) as Record<Stream, StreamText>
  return { runId, result, ...told, images: output?.images ?? [], outputLost: output === null }
}

const lostText = (writtenBytes: number): StreamText => ({
  text: '',
  totalBytes: writtenBytes,
  omittedBytes: writtenBytes,
})

/** @param reportedBytes what the stream is said to have had in all. */
export function toStreamText({ head, omittedBytes, tail }: KeptStream, reportedBytes: number): StreamText {
  const keptBytes = head.length + tail.length
  if (omittedBytes === 0) {
    const text = decode(tail.length === 0 ? head : Buffer.concat([head, tail]))
    return { text, totalBytes: Math.max(reportedBytes, keptBytes), omittedBytes }
  }
  const wholeHead = head.subarray(0, head.length - danglingStart(head))
  const wholeTail = tail.subarray(danglingEnd(tail))
  const cutBytes = head.length - wholeHead.length + tail.length - wholeTail.length
  return {
    text: `${decode(wholeHead)}\n[… ${omittedBytes + cutBytes} bytes left out …]\n${decode(wholeTail)}`,
    totalBytes: Math.max(reportedBytes, keptBytes + omittedBytes),
    omittedBytes: omittedBytes + cutBytes,
  }
}

/** Bytes of a stream so far, kept or not. */
export const bytesOf = ({ head, omittedBytes, tail }: KeptStream): number => head.length + omittedBytes + tail.length

/** The same without the beginning of a character at its end, which more output may complete. */
export function wholeCharacters({ head, omittedBytes, tail }: KeptStream): KeptStream {
  return tail.length > 0 || omittedBytes > 0
    ? { head, omittedBytes, tail: tail.subarray(0, tail.length - danglingStart(tail)) }
    : { head: head.subarray(0, head.length - danglingStart(head)), omittedBytes, tail }
}

/** What came after the first `offset` bytes of a stream. */
export function keptAfter({ head, omittedBytes, tail }: KeptStream, offset: number): KeptStream {
  const rest = head.subarray(Math.min(offset, head.length))
  const beyondHead = Math.max(offset - head.length, 0)
  const beyondGap = Math.max(beyondHead - omittedBytes, 0)
  return {
    head: rest,
    omittedBytes: Math.max(omittedBytes - beyondHead, 0),
    tail: tail.subarray(Math.min(beyondGap, tail.length)),
  }
}

/**
 * Keeps up to `keptBytes` of the beginning and up to as many of the end. A gap starts the end anew: what stood between
 * two gaps counts as left out, so that the text never joins what was not adjacent.
 */
class StreamFold {
  readonly #keptBytes: number
  #head = Buffer.alloc(0)
  #headBytes = 0
  #tail = Buffer.alloc(0)
  #tailBytes = 0
  #omittedBytes = 0

  constructor(keptBytes: number) {
    this.#keptBytes = Math.max(keptBytes, 1)
  }

  add(bytes: Uint8Array): void {
    const intoHead = this.#omittedBytes > 0 || this.#tailBytes > 0 ? 0 : this.#keptBytes - this.#headBytes
    const head = bytes.subarray(0, intoHead)
    if (head.length > 0) {
      this.#head = withRoom(this.#head, this.#headBytes, head.length, this.#keptBytes)
      this.#head.set(head, this.#headBytes)
      this.#headBytes += head.length
    }
    this.#addToTail(bytes.subarray(head.length))
  }

  skip(bytes: number): void {
    this.#omittedBytes += this.#tailBytes + bytes
    this.#tailBytes = 0
  }

  keep(): KeptStream {
    const tail = this.#tail.subarray(Math.max(this.#tailBytes - this.#keptBytes, 0), this.#tailBytes)
    return {
      head: this.#head.subarray(0, this.#headBytes),
      omittedBytes: this.#omittedBytes + this.#tailBytes - tail.length,
      tail,
    }
  }

  /** The tail's buffer is twice what is kept, so that old bytes are moved out once per `keptBytes` of output. */
  #addToTail(added: Uint8Array): void {
    const bytes = added.subarray(Math.max(added.length - this.#keptBytes, 0))
    this.#omittedBytes += added.length - bytes.length
    if (bytes.length === 0) return
    if (this.#tailBytes + bytes.length > 2 * this.#keptBytes) {
      const droppedBytes = this.#tailBytes - this.#keptBytes
      this.#tail.copyWithin(0, droppedBytes, this.#tailBytes)
      this.#tailBytes -= droppedBytes
      this.#omittedBytes += droppedBytes
    }
    this.#tail = withRoom(this.#tail, this.#tailBytes, bytes.length, 2 * this.#keptBytes)
    this.#tail.set(bytes, this.#tailBytes)
    this.#tailBytes += bytes.length
  }
}

/** The same content with room for `moreBytes`; grows by doubling up to `limitBytes`. */
function withRoom(
  buffer: Buffer<ArrayBuffer>,
  usedBytes: number,
  moreBytes: number,
  limitBytes: number,
): Buffer<ArrayBuffer> {
  const neededBytes = usedBytes + moreBytes
  if (neededBytes <= buffer.length) return buffer
  const grown = Buffer.allocUnsafeSlow(Math.max(neededBytes, Math.min(limitBytes, Math.max(2 * buffer.length, 1024))))
  grown.set(buffer.subarray(0, usedBytes))
  return grown
}

/** A byte order mark is output like any other; invalid bytes become U+FFFD. */
const decode = (bytes: Uint8Array): string => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80

/** Bytes at the end of `head` that begin a character which the cut left incomplete. */
function danglingStart(head: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, head.length); back++) {
    const byte = head[head.length - back]!
    if (isContinuation(byte)) continue
    const characterBytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return characterBytes > back ? back : 0
  }
  return 0
}

/** Bytes at the beginning of `tail` that end a character which the cut left incomplete. */
function danglingEnd(tail: Uint8Array): number {
  let bytes = 0
  while (bytes < 3 && isContinuation(tail[bytes])) bytes++
  return bytes
}
