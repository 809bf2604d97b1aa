/** Frames of every kind to the guest, in any order and with any content: guest/PROTOCOL.md. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { frame, openSlot, preparation, slotsMissing } from '../../support/guest-driver.ts'

const toGuest = [
  'prepare',
  'code',
  'stdin',
  'go',
  'credit',
  'kill',
  'begin',
  'zygote',
  'pictureCredit',
  'input',
  'spare',
] as const
const numberOf = Object.fromEntries(toGuest.map((name, index) => [name, index + 1])) as Record<
  (typeof toGuest)[number],
  number
>

/** What each kind carries when it is well-formed, which gets a sequence beyond its first frame. */
const usual: Partial<Record<(typeof toGuest)[number], Buffer>> = {
  prepare: preparation({ args: ['cat'], code: 'x' }),
  code: Buffer.from('x'),
  credit: Buffer.from([0, 16, 0, 0]),
  pictureCredit: Buffer.from([0, 16, 0, 0]),
}

const anyFrame = fc
  .record({
    name: fc.constantFrom(...toGuest),
    run: fc.oneof({ arbitrary: fc.constant(1), weight: 6 }, { arbitrary: fc.nat({ max: 3 }), weight: 2 }, fc.nat()),
    payload: fc.uint8Array({ maxLength: 300 }),
    isUsual: fc.boolean(),
    flipped: fc.option(fc.record({ at: fc.nat(), bit: fc.nat({ max: 7 }) }), { freq: 4 }),
  })
  .map(({ name, run, payload, isUsual, flipped }) => {
    const content = Buffer.from(isUsual ? (usual[name] ?? Buffer.alloc(0)) : payload)
    if (flipped && content.length > 0) content[flipped.at % content.length]! ^= 1 << flipped.bit
    return { name, bytes: frame(numberOf[name], run, content) }
  })

const begun = [frame(numberOf.prepare, 1, usual.prepare), frame(numberOf.code, 1, usual.code)]

describe.skipIf(slotsMissing !== undefined)('the guest', () => {
  it('ends its slot with the reason, or continues, whatever frames it receives', async () => {
    const sent = new Set<string>()
    const sequences = fc.tuple(fc.boolean(), fc.array(anyFrame, { minLength: 4, maxLength: 12 }))
    await fc.assert(
      fc.asyncProperty(sequences, async ([isBegun, frames]) => {
        const slot = await openSlot({ build: 'sanitized', foreground: true })
        try {
          for (const { name } of frames) sent.add(name)
          slot.send(...(isBegun ? begun : []), ...frames.map(({ bytes }) => bytes))
          slot.hangUp()
          // 0: nothing was wrong until the end of its input.
          expect([0, 70]).toContain(await slot.exitCode)
          expect(slot.diagnostics).toMatch(/^(glovebox guest: .+\n)?$/)
        } finally {
          await slot.close()
        }
      }),
      { numRuns: 15, endOnFailure: true },
    )
    expect([...sent].toSorted()).toEqual([...toGuest].toSorted())
  })
})
