import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type RunResult, type Stream, unmeasured } from '../../../src/base/run.ts'
import { OutputFold } from '../../../src/core/runs/output-fold.ts'
import { StreamDecoder } from '../../../src/core/runs/stream-decoder.ts'
import { type Transcript, toTranscript } from '../../../src/core/runs/transcript.ts'
import { testProfile } from '../../support/front.ts'

const limits = { ...testProfile.limits, outputSoftBytes: 8, timeoutMs: 1000 }
const bytes = (text: string): Uint8Array => Buffer.from(text)

/** Folds one run that wrote `outputs` to a stream; a number is a gap of that many bytes. */
function fold(outputs: readonly (Uint8Array | number)[], stream: Stream = 'stdout'): Transcript {
  const written = outputs.reduce<number>((sum, item) => sum + (typeof item === 'number' ? item : item.length), 0)
  const folded = new OutputFold(limits.outputSoftBytes)
  for (const [index, item] of outputs.entries()) {
    const seq = index + 2
    if (typeof item === 'number') folded.add({ kind: 'gap', seq, stream, bytes: item })
    else folded.add({ kind: 'output', seq, stream, bytes: item })
  }
  const result: RunResult = unmeasured(limits, { kind: 'exited', code: 0 })
  return toTranscript('trc_1', { ...result, outputBytes: { stdout: 0, stderr: 0, [stream]: written } }, folded.kept())
}

describe('the buffered result of a run', () => {
  it('contains what the run wrote, per stream', () => {
    const { runId, stdout, stderr } = fold([bytes('one '), bytes('two')], 'stderr')
    expect(runId).toBe('trc_1')
    expect(stdout).toEqual({ text: '', totalBytes: 0, omittedBytes: 0 })
    expect(stderr).toEqual({ text: 'one two', totalBytes: 7, omittedBytes: 0 })
  })

  it('joins a character that was split between two pieces', () => {
    const euro = bytes('€')
    expect(fold([euro.subarray(0, 1), euro.subarray(1, 2), euro.subarray(2)]).stdout.text).toBe('€')
  })

  it('keeps NUL and byte order marks, and replaces invalid bytes with U+FFFD', () => {
    expect(fold([bytes('a\0b')]).stdout.text).toBe('a\0b')
    expect(fold([Buffer.from([0xef, 0xbb, 0xbf, 0x61])]).stdout.text).toBe('\ufeffa')
    expect(fold([Buffer.from([0x61, 0xff, 0x62])]).stdout.text).toBe('a\ufffdb')
  })

  it('keeps head and tail and states how much is missing between them', () => {
    const { stdout } = fold([bytes('headhead'), bytes('x'.repeat(1000)), bytes('tailtail')])
    expect(stdout.text).toBe('headhead\n[… 1000 bytes left out …]\ntailtail')
    expect(stdout).toMatchObject({ totalBytes: 1016, omittedBytes: 1000 })
  })

  it('includes gaps that the runner made', () => {
    const { stdout } = fold([bytes('head'), 5000, bytes('tail')])
    expect(stdout).toEqual({ text: 'head\n[… 5000 bytes left out …]\ntail', totalBytes: 5008, omittedBytes: 5000 })
  })

  it('never joins text from both sides of a gap', () => {
    const { stdout } = fold([bytes('a'), 10, bytes('b'), 20, bytes('c')])
    expect(stdout).toEqual({ text: 'a\n[… 31 bytes left out …]\nc', totalBytes: 33, omittedBytes: 31 })
  })

  it('cuts between characters', () => {
    const { stdout } = fold([bytes('€€€'), 100, bytes('€€€').subarray(1)])
    expect(stdout.text).not.toContain('\ufffd')
    expect(stdout.totalBytes).toBe(117)
  })

  it('accounts for every byte, for every split of the output', () => {
    const pieces = fc.array(fc.oneof(fc.uint8Array({ maxLength: 40 }), fc.integer({ min: 1, max: 50 })), {
      maxLength: 30,
    })
    fc.assert(
      fc.property(pieces, (outputs) => {
        const { stdout } = fold(outputs)
        const total = outputs.reduce<number>((sum, item) => sum + (typeof item === 'number' ? item : item.length), 0)
        expect(stdout.totalBytes).toBe(total)
        expect(stdout.omittedBytes).toBeLessThanOrEqual(total)
        const whole = outputs.every((item) => typeof item !== 'number') && total <= 16
        if (whole)
          expect(stdout.text).toBe(
            new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.concat(outputs as Uint8Array[])),
          )
      }),
    )
  })

  it('stays within its bounds for endless output', () => {
    const folded = fold(Array.from({ length: 20_000 }, () => bytes('0123456789')))
    expect(folded.stdout.text.length).toBeLessThan(64)
    expect(folded.stdout.totalBytes).toBe(200_000)
  })

  it('says when the output was lost', () => {
    const result = { ...unmeasured(limits, { kind: 'exited', code: 0 }), outputBytes: { stdout: 7, stderr: 0 } }
    expect(toTranscript('trc_1', result, null)).toMatchObject({
      stdout: { text: '', totalBytes: 7, omittedBytes: 7 },
      outputLost: true,
    })
  })
})

describe('streamed text', () => {
  it('equals the whole text, for every split of the output', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.integer({ min: 1, max: 5 }), (text, size) => {
        const live = new StreamDecoder()
        const all = bytes(text.toWellFormed())
        let seen = ''
        for (let at = 0; at < all.length; at += size) seen += live.add('stdout', all.subarray(at, at + size))
        expect(seen + live.flush('stdout')).toBe(text.toWellFormed())
      }),
    )
  })

  it('does not mix partial characters of the two streams', () => {
    const live = new StreamDecoder()
    const [first, second] = [bytes('é').subarray(0, 1), bytes('é').subarray(1)]
    expect(live.add('stdout', first) + live.add('stderr', bytes('x')) + live.add('stdout', second)).toBe('xé')
  })
})
