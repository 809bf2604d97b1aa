import { describe, expect, it } from 'vitest'
import { OutputPace } from '../../../src/base/output-pace.ts'

const mebibyte = 1024 * 1024
const event = (bytes: number) => ({ kind: 'output', bytes: new Uint8Array(bytes) })

type Events = { kind: string; bytes?: Uint8Array | number }[]

async function passedBy(pace: OutputPace, events: Events, freeBytes: number): Promise<Events> {
  async function* come() {
    yield* events
  }
  const passed: Events = []
  for await (const each of pace.slow(come(), 'a', freeBytes)) passed.push(each)
  return passed
}

describe('output that is not returned', () => {
  it('is read at 64 MiB per second after a tenth of a second', () => {
    const pace = new OutputPace()
    expect(pace.count('a', 6 * mebibyte)).toBe(0)
    const waitMs = pace.count('a', 64 * mebibyte)
    expect(waitMs).toBeGreaterThan(800)
    expect(waitMs).toBeLessThan(1_010)
  })

  it('of one organization does not slow another', () => {
    const pace = new OutputPace()
    pace.count('a', 1024 * mebibyte)
    expect(pace.count('b', 6 * mebibyte)).toBe(0)
  })

  it('is passed on in order with all other events, and the next one waits', async () => {
    const events = [event(10), { kind: 'gap', bytes: 5 }, event(70 * mebibyte), { kind: 'ended' }]
    const startedMs = performance.now()
    expect(await passedBy(new OutputPace(), events, 20)).toEqual(events)
    expect(performance.now() - startedMs).toBeGreaterThan(900)
  })

  it('does not count as long as the caller gets it', async () => {
    const pace = new OutputPace()
    await passedBy(pace, [event(7 * mebibyte)], 8 * mebibyte)
    expect(pace.count('a', 6 * mebibyte)).toBe(0)
  })
})
