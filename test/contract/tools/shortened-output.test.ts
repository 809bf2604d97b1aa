import { describe, expect, it } from 'vitest'
import { bytesOf, nothingKept, toStreamText } from '../../../src/core/runs/transcript.ts'
import type { KeptOutput, KeptStream } from '../../../src/store/store.ts'
import { shortenOutput } from '../../../src/tools/execute/shortened-output.ts'

const stream = (head: string | Uint8Array, omittedBytes = 0, tail = ''): KeptStream => ({
  head: Buffer.from(head),
  omittedBytes,
  tail: Buffer.from(tail),
})
const output = (stdout: KeptStream, stderr: KeptStream = stream('')): KeptOutput => ({ ...nothingKept, stdout, stderr })
const textOf = (kept: KeptStream) => toStreamText(kept, 0).text
const lines = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, n) => `line ${from + n}\n`).join('')

describe('shortened output', () => {
  it('is unchanged if it fits', () => {
    const fits = output(stream('a'.repeat(60)), stream('ä'.repeat(40)))
    expect(shortenOutput(fits, 100)).toBe(fits)
  })

  it('keeps the head and the tail at line ends, and counts what is left out', () => {
    const text = lines(1, 100)
    const { stdout } = shortenOutput(output(stream(text)), 60)
    const shown = lines(1, 4) + lines(98, 100)
    const leftOut = text.length - shown.length
    expect(textOf(stdout)).toBe(`${lines(1, 4)}\n[… ${leftOut} bytes left out …]\n${lines(98, 100)}`)
    expect(bytesOf(stdout)).toBe(text.length)
  })

  it('cuts within lines that are too long, between characters', () => {
    const { stdout } = shortenOutput(output(stream('€'.repeat(1_000))), 20)
    expect(textOf(stdout)).toBe(`${'€'.repeat(10)}\n[… 2940 bytes left out …]\n${'€'.repeat(10)}`)
  })

  it('adds to what was already left out, and counts it once', () => {
    const { stdout } = shortenOutput(output(stream('a'.repeat(50), 1_000, 'b'.repeat(50))), 20)
    expect(textOf(stdout)).toBe(`${'a'.repeat(10)}\n[… 1080 bytes left out …]\n${'b'.repeat(10)}`)
  })

  it('gives a stream what the other one does not need', () => {
    const { stdout, stderr } = shortenOutput(output(stream('a'.repeat(1_000)), stream('short')), 100)
    expect([stdout.head.length + stdout.tail.length, textOf(stderr)]).toEqual([94, 'short'])
    const both = shortenOutput(output(stream('a'.repeat(1_000)), stream('b'.repeat(1_000))), 100)
    expect([both.stdout, both.stderr].map(({ head, tail }) => head.length + tail.length)).toEqual([50, 50])
  })

  it('counts bytes that are no characters, which are shown as replacement characters', () => {
    const { stdout } = shortenOutput(output(stream(new Uint8Array(1_000).fill(0x80))), 20)
    expect(stdout.head.length + stdout.tail.length).toBeLessThanOrEqual(20)
  })
})
