import type { RunResult, ShownImage, Stream } from '../../base/run.ts'
import type { KeptOutput, KeptStream } from '../../store/store.ts'

/** The stored output of a run, and one of its streams. */
export type Output = KeptOutput
export type OutputStream = KeptStream

/** One output stream as text. */
export interface StreamText {
  /** Head and tail; between them, a line with the number of omitted bytes, if any. */
  text: string
  /** Number of bytes that the run wrote. */
  totalBytes: number
  /** Number of written bytes that `text` does not contain. */
  omittedBytes: number
}

/** A finished run with its output as text. */
export interface Transcript {
  runId: string
  result: RunResult
  stdout: StreamText
  stderr: StreamText
  /** Images that the run displayed, in order. */
  images: readonly ShownImage[]
  /** Whether the output is not stored, so that both texts are empty. */
  outputLost: boolean
}

const emptyStream: KeptStream = { head: new Uint8Array(0), omittedBytes: 0, tail: new Uint8Array(0) }

export const nothingKept: KeptOutput = { stdout: emptyStream, stderr: emptyStream, images: [] }

/** Converts the output of a finished run to text. @param output `null` if it is not stored. */
export function toTranscript(runId: string, result: RunResult, output: KeptOutput | null): Transcript {
  const text = (stream: Stream): StreamText => {
    const writtenBytes = result.outputBytes[stream]
    return output ? toStreamText(output[stream], writtenBytes) : lostText(writtenBytes)
  }
  return {
    runId,
    result,
    stdout: text('stdout'),
    stderr: text('stderr'),
    images: output?.images ?? [],
    outputLost: output === null,
  }
}

const lostText = (writtenBytes: number): StreamText => ({
  text: '',
  totalBytes: writtenBytes,
  omittedBytes: writtenBytes,
})

/** Converts one stream to text. @param reportedBytes total size of the stream as the runner counted it. */
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

/** Returns the total size of a stream so far, in bytes. */
export const bytesOf = ({ head, omittedBytes, tail }: KeptStream): number => head.length + omittedBytes + tail.length

/** Removes an incomplete UTF-8 character from the end, which more output may complete. */
export function wholeCharacters({ head, omittedBytes, tail }: KeptStream): KeptStream {
  return tail.length > 0 || omittedBytes > 0
    ? { head, omittedBytes, tail: tail.subarray(0, tail.length - danglingStart(tail)) }
    : { head: head.subarray(0, head.length - danglingStart(head)), omittedBytes, tail }
}

/** Returns the part of a stream after its first `offset` bytes. */
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

/** Decodes UTF-8. Keeps byte order marks, and replaces invalid bytes by U+FFFD. */
const decode = (bytes: Uint8Array): string => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80

/** Returns the number of bytes at the end of `head` that belong to an incomplete character. */
function danglingStart(head: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, head.length); back++) {
    const byte = head[head.length - back]!
    if (isContinuation(byte)) continue
    const characterBytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return characterBytes > back ? back : 0
  }
  return 0
}

/** Returns the number of bytes at the beginning of `tail` that belong to an incomplete character. */
function danglingEnd(tail: Uint8Array): number {
  let bytes = 0
  while (bytes < 3 && isContinuation(tail[bytes])) bytes++
  return bytes
}
