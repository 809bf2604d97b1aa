import { createParser } from 'eventsource-parser'
import { describe, expect, it } from 'vitest'
import { EventBoundary } from '../../../src/gateway/events.ts'

const events = [
  'event: message',
  'data: {"a":1}',
  '',
  ': a comment',
  '',
  'data: first',
  'data: second',
  '',
  '',
] as const

/** Every way to cut a stream into two pieces. */
const cuts = (text: string): [string, string][] =>
  Array.from({ length: text.length + 1 }, (_, at) => [text.slice(0, at), text.slice(at)])

const read = (pieces: readonly string[]): string[] => {
  const data: string[] = []
  const parser = createParser({ onEvent: (event) => data.push(event.data) })
  for (const piece of pieces) parser.feed(piece)
  return data
}

describe.each([
  ['LF', '\n'],
  ['CR', '\r'],
  ['CRLF', '\r\n'],
])('an event stream with %s line endings', (_name, ending) => {
  const stream = events.join(ending)

  it('takes a comment of the gateway wherever it says that it is between two events, however it is cut', () => {
    let inserted = 0
    for (const [first, second] of cuts(stream)) {
      const boundary = new EventBoundary()
      boundary.add(Buffer.from(first))
      if (!boundary.isBetween) continue
      inserted++
      expect(read([first, ': keep-alive\n\n', second, '\n\n'])).toEqual(['{"a":1}', 'first\nsecond'])
    }
    expect(inserted).toBeGreaterThan(1)
  })

  it('is between two events at its end, and never inside one', () => {
    for (const [first, second] of cuts(stream)) {
      const boundary = new EventBoundary()
      boundary.add(Buffer.from(first))
      boundary.add(Buffer.from(second))
      boundary.add(Buffer.from(': next'))
      expect(boundary.isBetween).toBe(false)
    }
  })
})
