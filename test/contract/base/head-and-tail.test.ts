import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { HeadAndTail } from '../../../src/base/head-and-tail.ts'

const pieces = fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 20 })
const limit = fc.integer({ min: 0, max: 60 })

describe('the head and tail of a stream', () => {
  it('are its first and last bytes, and what lies between is counted', () => {
    fc.assert(
      fc.property(pieces, limit, limit, (given, headLimit, tailLimit) => {
        const kept = new HeadAndTail(headLimit, tailLimit)
        let headBytes = 0
        for (const piece of given) headBytes += kept.append(piece)
        const all = Buffer.concat(given)
        const { head, tail, omittedBytes } = kept
        expect(head.equals(all.subarray(0, headLimit))).toBe(true)
        expect(headBytes).toBe(head.length)
        expect(tail.length).toBe(Math.min(all.length - head.length, tailLimit))
        expect(tail.equals(all.subarray(all.length - tail.length))).toBe(true)
        expect(omittedBytes).toBe(all.length - head.length - tail.length)
        expect(kept.retainedBytes).toBeLessThanOrEqual(headLimit + tailLimit)
      }),
    )
  })

  it('are never joined across a gap', () => {
    const kept = new HeadAndTail(4, 4)
    kept.append(Buffer.from('ab'))
    kept.skip(10)
    kept.append(Buffer.from('cd'))
    expect([kept.head.toString(), kept.omittedBytes, kept.tail.toString()]).toEqual(['ab', 10, 'cd'])
    kept.skip(5)
    kept.append(Buffer.from('efghij'))
    expect([kept.head.toString(), kept.omittedBytes, kept.tail.toString()]).toEqual(['ab', 19, 'ghij'])
  })

  it('take bytes into the tail before the head is full where that is required', () => {
    const kept = new HeadAndTail(8, 2)
    kept.append(Buffer.from('ab'))
    kept.appendToTail(Buffer.from('cde'))
    expect(kept.append(Buffer.from('f'))).toBe(0)
    expect([kept.head.toString(), kept.omittedBytes, kept.tail.toString()]).toEqual(['ab', 2, 'ef'])
  })
})
