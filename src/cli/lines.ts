/** Longest line that the server sends: both streams at their soft limits, escaped, stay far below. */
const maxLineCharacters = 256 * 1024 * 1024

/**
 * The lines of a stream as they come, without their line breaks; a last line without one is a line too.
 * @throws Error when a line has no end in sight.
 */
export async function* readLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder()
  let pieces: string[] = []
  let heldCharacters = 0
  for await (const bytes of body) {
    const [first = '', ...others] = decoder.decode(bytes, { stream: true }).split('\n')
    pieces.push(first)
    heldCharacters += first.length
    if (heldCharacters > maxLineCharacters) throw new Error('there is a line without an end')
    for (const other of others) {
      yield pieces.join('')
      pieces = [other]
      heldCharacters = other.length
    }
  }
  const last = pieces.join('') + decoder.decode()
  if (last !== '') yield last
}
