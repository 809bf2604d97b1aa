import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readlinkSync, rmSync, statSync, symlinkSync, unlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { IdRanges } from '../../../src/engine/slots/id-ranges.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'glovebox-ids-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

const nobodyIsGone = () => false
const everybodyIsGone = () => true

/** Room for three ranges. */
const base = 0x8000_0000 - 3 * 65_536

describe('id ranges', () => {
  it('are never shared by two live slots, of any instance', () => {
    const [one, two] = [new IdRanges(dir, 'one', base), new IdRanges(dir, 'two', base)]
    const firsts = [one.lease(), two.lease(), one.lease()].map(({ first }) => first)
    expect(new Set(firsts).size).toBe(3)
    expect(firsts.every((first) => (first - base) % 65_536 === 0)).toBe(true)
    expect(() => two.lease()).toThrow(/in use/)
  })

  it('are the same ranges for instances with another start', () => {
    const early = new IdRanges(dir, 'one', base)
    for (let taken = 0; taken < 3; taken++) early.lease()
    expect(() => new IdRanges(dir, 'two', base + 1000).lease()).toThrow(/in use/)
  })

  it('are kept in a directory whose new parent lets slots pass', () => {
    new IdRanges(join(dir, 'state', 'ids'), 'one', base)
    expect([statSync(join(dir, 'state')).mode & 0o777, statSync(join(dir, 'state', 'ids')).mode & 0o777]).toEqual([
      0o711, 0o700,
    ])
  })

  it('are reused as late as possible', () => {
    const ranges = new IdRanges(dir, 'one', base)
    const first = ranges.lease()
    first.release()
    expect(ranges.lease().first).not.toBe(first.first)
    first.release() // A second release has no effect.
  })

  it('of a dead process are reclaimed by the next one of the same instance', () => {
    new IdRanges(dir, 'one', base).lease()
    const other = new IdRanges(dir, 'two', base)
    other.lease()
    expect(new IdRanges(dir, 'one', base).reclaim(nobodyIsGone)).toBe(1)
    expect(readdirSync(dir)).toHaveLength(1)
    expect(other.reclaim(nobodyIsGone)).toBe(1)
  })

  it('of a removed instance are reclaimed by any other, once', () => {
    for (const owner of ['gone', 'gone', 'alive']) new IdRanges(dir, owner, base).lease()
    const asked: string[] = []
    const isGone = (owner: string) => asked.push(owner) > 0 && owner === 'gone'
    expect(new IdRanges(dir, 'one', base).reclaim(isGone)).toBe(2)
    expect(asked.sort()).toEqual(['alive', 'gone'])
    expect(readdirSync(dir).map((name) => readlinkSync(join(dir, name)).split(' ')[0])).toEqual(['alive'])
  })

  it('are kept when their owner may live out of sight: in another container, or unknown', () => {
    const { first } = new IdRanges(dir, 'elsewhere', base).lease()
    const target = readlinkSync(join(dir, `${first}`)).replace(/pid:\[\d+\]/, 'pid:[1]')
    unlinkSync(join(dir, `${first}`))
    symlinkSync(target, join(dir, `${first}`))
    symlinkSync('older', join(dir, `${first + 65_536}`))
    expect(new IdRanges(dir, 'one', base).reclaim(everybodyIsGone)).toBe(0)
    expect(readdirSync(dir)).toHaveLength(2)
  })

  it.skipIf(process.getuid?.() !== 0)('are kept while a process uses one of their ids', async () => {
    const { first } = new IdRanges(dir, 'gone', base).lease()
    const ids = [`--reuid=${first + 1000}`, `--regid=${first + 1000}`, '--clear-groups']
    const child = spawn('setpriv', [...ids, 'sh', '-c', 'echo on; exec cat'], { stdio: ['pipe', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
    const ranges = new IdRanges(dir, 'one', base)
    expect(ranges.reclaim(everybodyIsGone)).toBe(0)
    child.stdin.end()
    await once(child, 'exit')
    expect(ranges.reclaim(everybodyIsGone)).toBe(1)
  })

  it('never overlap the ids of the host', () => {
    for (const bad of [0, 65_535, 0x8000_0000, 1.5])
      expect(() => new IdRanges(dir, 'one', bad), `${bad}`).toThrow(RangeError)
  })
})
