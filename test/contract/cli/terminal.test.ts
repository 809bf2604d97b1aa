import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { hasColors, printable, styled, TerminalText } from '../../../src/cli/terminal.ts'

const terminal = Object.assign(new PassThrough(), { isTTY: true })
const pipe = new PassThrough()

const shown = (...pieces: (string | number[])[]): string => {
  const text = new TerminalText()
  return pieces.map((piece) => text.add(Buffer.from(piece as string))).join('') + text.end()
}

describe('the output of a program on a terminal', () => {
  it.each([
    ['a title', '\x1b]0;owned\x07', '\\x1b]0;owned\\x07'],
    ['the clipboard', '\x1b]52;c;ZXZpbA==\x1b\\', '\\x1b]52;c;ZXZpbA==\\x1b\\'],
    ['clearing the screen', '\x1b[2J\x1b[H', '\\x1b[2J\\x1b[H'],
    ['a report that is typed as input', '\x1b[6n', '\\x1b[6n'],
    ['an eight-bit control sequence', '\u009b2J', '\\x9b2J'],
    ['backspaces and a bell', 'ok\b\b\x07', 'ok\\x08\\x08\\x07'],
    ['an unfinished sequence', 'x\x1b[3', 'x\\x1b[3'],
  ])('shows %s as text', (_, text, expected) => {
    expect(shown(text)).toBe(expected)
  })

  it('keeps lines, tabs, progress bars, colors and characters of every script', () => {
    const text = '\x1b[1;31mrot\x1b[0m\tgrün\r\n 50 %\r100 %\x1b[K\n日本 🎉\n'
    expect(shown(text)).toBe(text)
  })

  it('is the same however it is split', () => {
    const text = 'a\x1b[31mé🎉\x1b[2J\x1b]0;t\x07\u009b'
    const whole = shown(text)
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1 }), (sizes) => {
        const bytes = [...Buffer.from(text)]
        const pieces: number[][] = []
        for (const size of sizes) pieces.push(bytes.splice(0, size))
        expect(shown(...pieces, bytes)).toBe(whole)
      }),
    )
    expect(shown(...[...Buffer.from(text)].map((byte) => [byte]))).toBe(whole)
  })
})

describe('a name from elsewhere', () => {
  it('is escaped on a terminal, and exact in a pipe', () => {
    const name = 'a\n\x1b[31mb\u202egnp.\u009b'
    expect(printable(name, terminal)).toBe('a\\x0a\\x1b[31mb\\u202egnp.\\x9b')
    expect(printable(name, pipe)).toBe(name)
    expect(printable('Übersicht 日本.csv', terminal)).toBe('Übersicht 日本.csv')
  })
})

describe('colors', () => {
  it('are used on terminals only, unless the environment says otherwise', () => {
    const cases: [boolean, typeof terminal | typeof pipe, Record<string, string>][] = [
      [true, terminal, {}],
      [false, pipe, {}],
      [false, terminal, { NO_COLOR: '1' }],
      [true, terminal, { NO_COLOR: '' }],
      [false, terminal, { TERM: 'dumb' }],
      [true, pipe, { FORCE_COLOR: '1' }],
      [true, pipe, { FORCE_COLOR: '', NO_COLOR: '1' }],
      [false, terminal, { FORCE_COLOR: '0' }],
    ]
    for (const [expected, output, env] of cases) expect(hasColors(output, env)).toBe(expected)
    expect(styled('x', 'red', terminal, {})).toBe('\x1b[31mx\x1b[39m')
    expect(styled('x', 'red', pipe, {})).toBe('x')
  })
})
