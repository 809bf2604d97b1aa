import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { OutputFold } from '../../../src/core/runs/output-fold.ts'
import { bytesOf, keptAfter, toStreamText, wholeCharacters } from '../../../src/core/runs/transcript.ts'

/** The retained part of these chunks. */
function keep(pieces: readonly Uint8Array[], keptBytes: number) {
  const fold = new OutputFold(keptBytes)
  pieces.forEach((bytes, index) => void fold.add({ kind: 'output', seq: index + 1, stream: 'stdout', bytes }))
  return fold.kept().stdout
}

const pieces = fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 12 })

describe('the retained output of a stream', () => {
  it('is complete, or its head and tail with the number of bytes between them', () => {
    fc.assert(
      fc.property(pieces, fc.integer({ min: 1, max: 64 }), (given, keptBytes) => {
        const all = Buffer.concat(given)
        const { head, omittedBytes, tail } = keep(given, keptBytes)
        expect(head.length + omittedBytes + tail.length).toBe(all.length)
        expect(Buffer.from(head).equals(all.subarray(0, head.length))).toBe(true)
        expect(Buffer.from(tail).equals(all.subarray(all.length - tail.length))).toBe(true)
        if (all.length <= keptBytes) expect(omittedBytes).toBe(0)
      }),
    )
  })

  it('can be read from any byte on, without repetition or loss', () => {
    fc.assert(
      fc.property(pieces, fc.integer({ min: 1, max: 64 }), fc.nat(500), (given, keptBytes, offset) => {
        const all = Buffer.concat(given)
        const rest = keptAfter(keep(given, keptBytes), offset)
        const expected = Math.max(all.length - offset, 0)
        expect(bytesOf(rest)).toBe(expected)
        const told = Buffer.concat([rest.head, rest.tail])
        if (rest.omittedBytes === 0) expect(told.equals(all.subarray(Math.min(offset, all.length)))).toBe(true)
      }),
    )
  })

  it('is returned in whole characters while it grows, with the same text in the end', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 40 }), fc.nat(160), (text, cut) => {
        const all = Buffer.from(text, 'utf8')
        const sofar = wholeCharacters(keep([all.subarray(0, cut)], 1024))
        const first = toStreamText(sofar, 0).text
        const second = toStreamText(keptAfter(keep([all], 1024), bytesOf(sofar)), 0).text
        expect(first + second).toBe(all.toString('utf8'))
      }),
    )
  })
})
