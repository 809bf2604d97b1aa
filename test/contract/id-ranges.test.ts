import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { IdRanges } from '../../src/engine/id-ranges.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'glovebox-ids-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

/** Room for three ranges. */
const base = 0x8000_0000 - 3 * 65_536

describe('id ranges', () => {
  it('are never shared by two live slots, of whichever instance', () => {
    const [one, two] = [new IdRanges(dir, 'one', base), new IdRanges(dir, 'two', base)]
    const firsts = [one.lease(), two.lease(), one.lease()].map(({ first }) => first)
    expect(new Set(firsts).size).toBe(3)
    expect(firsts.every((first) => (first - base) % 65_536 === 0)).toBe(true)
    expect(() => two.lease()).toThrow(/in use/)
  })

  it('are the same ranges for instances that begin elsewhere', () => {
    const early = new IdRanges(dir, 'one', base)
    for (let taken = 0; taken < 3; taken++) early.lease()
    expect(() => new IdRanges(dir, 'two', base + 1000).lease()).toThrow(/in use/)
  })

  it('rest as long as possible before they are used again', () => {
    const ranges = new IdRanges(dir, 'one', base)
    const first = ranges.lease()
    first.release()
    expect(ranges.lease().first).not.toBe(first.first)
    first.release() // Once more does no harm.
  })

  it('of a dead instance are taken back by its successor alone', () => {
    new IdRanges(dir, 'one', base).lease()
    const other = new IdRanges(dir, 'two', base)
    other.lease()
    expect(new IdRanges(dir, 'one', base).reclaim()).toBe(1)
    expect(other.reclaim()).toBe(1)
  })

  it('never reach into the ids of the machine', () => {
    for (const bad of [0, 65_535, 0x8000_0000, 1.5])
      expect(() => new IdRanges(dir, 'one', bad), `${bad}`).toThrow(RangeError)
  })
})
