import type { Output, OutputStream } from '../../core/runs/transcript.ts'

/**
 * Shortens output to a number of characters over both streams, for a model. The head and the tail of a stream are kept
 * and end at the end of a line, unless the lines are longer than half of what is kept.
 * @returns the same object if nothing had to be left out.
 */
export function shortenOutput(output: Output, maxCharacters: number): Output {
  const { stdout, stderr } = output
  // A character has at least one byte, so this is the only work for most runs.
  if (keptBytes(stdout) + keptBytes(stderr) <= maxCharacters) return output
  const lengths = [charactersOf(stdout), charactersOf(stderr)] as const
  if (lengths[0] + lengths[1] <= maxCharacters) return output
  const half = Math.floor(maxCharacters / 2)
  // A stream that needs less than its half leaves the rest to the other one.
  const ofStdout = Math.max(half, maxCharacters - lengths[1])
  const ofStderr = Math.max(half, maxCharacters - lengths[0])
  return {
    ...output,
    stdout: lengths[0] > ofStdout ? shortenStream(stdout, ofStdout) : stdout,
    stderr: lengths[1] > ofStderr ? shortenStream(stderr, ofStderr) : stderr,
  }
}

export const keptBytes = ({ head, tail }: OutputStream): number => head.length + tail.length

const charactersOf = ({ head, tail }: OutputStream): number => countCharacters(head) + countCharacters(tail)

function shortenStream({ head, omittedBytes, tail }: OutputStream, characters: number): OutputStream {
  const each = Math.floor(characters / 2)
  // Without a gap, the tail of the stream is at the end of the head.
  const isWhole = omittedBytes === 0
  const whole = isWhole ? Buffer.concat([head, tail]) : head
  const shownHead = atLineEnd(firstCharacters(whole, each))
  const shownTail = fromLineStart(lastCharacters(isWhole ? whole : tail, each))
  const total = head.length + omittedBytes + tail.length
  return { head: shownHead, omittedBytes: total - shownHead.length - shownTail.length, tail: shownTail }
}

const newline = 0x0a

/** Cuts after the last line that is complete, if that keeps at least half. */
function atLineEnd(bytes: Uint8Array): Uint8Array {
  const end = bytes.lastIndexOf(newline) + 1
  return end * 2 >= bytes.length ? bytes.subarray(0, end) : bytes
}

/** Cuts before the first line that is complete, if that keeps at least half. */
function fromLineStart(bytes: Uint8Array): Uint8Array {
  const start = bytes.indexOf(newline) + 1
  return start * 2 <= bytes.length ? bytes.subarray(start) : bytes
}

/** Counts characters in UTF-8. A stray continuation byte is decoded as U+FFFD, so it counts as well. */
function countCharacters(bytes: Uint8Array): number {
  let characters = 0
  for (let at = 0; at < bytes.length; at += widthAt(bytes, at)) characters++
  return characters
}

function firstCharacters(bytes: Uint8Array, characters: number): Uint8Array {
  let at = 0
  for (let left = characters; left > 0 && at < bytes.length; left--) at += widthAt(bytes, at)
  return bytes.subarray(0, at)
}

/** Steps back from the end by what can be at most the given number of characters, at the start of a character. */
function lastCharacters(bytes: Uint8Array, characters: number): Uint8Array {
  const skipped = Math.max(countCharacters(bytes) - characters, 0)
  return bytes.subarray(firstCharacters(bytes, skipped).length)
}

/** Returns the number of bytes of the character at a position, as far as its continuation bytes are there. */
function widthAt(bytes: Uint8Array, at: number): number {
  const first = bytes[at]!
  const wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1
  let width = 1
  while (width < wanted && at + width < bytes.length && (bytes[at + width]! & 0xc0) === 0x80) width++
  return width
}
