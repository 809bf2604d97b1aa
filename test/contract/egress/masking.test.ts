import { buffer } from 'node:stream/consumers'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { inOrder, Mask, masked } from '../../../src/egress/secrets/masking.ts'

const bytes = (text: string) => Buffer.from(text, 'latin1')
const replacements = inOrder(
  ['abab', 'aba', 'bcb', 'value', 'value-and-more'].map((from) => ({
    from: bytes(from),
    to: bytes(`<${from.length}>`),
  })),
)

async function inPieces(pieces: readonly string[]): Promise<string> {
  const mask = new Mask(replacements)
  for (const piece of pieces) mask.write(bytes(piece))
  mask.end()
  return (await buffer(mask)).toString('latin1')
}

describe('an answer with secrets in it', () => {
  it('contains none of them, however it is cut into pieces', async () => {
    const part = fc.oneof(
      fc.constantFrom('abab', 'bcb', 'value', 'value-and', '-and-more'),
      fc.constantFrom(...'abcv<'),
    )
    await fc.assert(
      fc.asyncProperty(fc.array(fc.string({ unit: part, maxLength: 12 }), { maxLength: 8 }), async (pieces) => {
        const shown = await inPieces(pieces)
        for (const { from } of replacements) expect(shown).not.toContain(from.toString('latin1'))
      }),
    )
  })

  it('has each of them replaced by its placeholder, also when it is echoed many times', async () => {
    const text = 'value,bcb,'.repeat(20_000)
    expect(await inPieces([text])).toBe('<5>,<3>,'.repeat(20_000))
    expect(masked('value-and-more value', replacements)).toBe('<14> <5>')
  })
})
