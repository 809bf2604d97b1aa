import { isUtf8 } from 'node:buffer'
import { Refusal } from './errors.ts'

/** Deeper than any message of ours; far from what recursion over a parsed body could not bear. */
const maxDepth = 64
/** Values in one body. A megabyte of code is one value; a million empty arrays are not a message. */
const maxValues = 100_000

const quote = 0x22
const backslash = 0x5c
const comma = 0x2c
const openBracket = 0x5b
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d

/**
 * Reads a JSON text. BOUNDARY: the bytes are hostile; their shape is bounded before anything is built from them.
 * Keys such as `__proto__` become plain own properties and change no prototype.
 * @throws Refusal `parse_error`.
 */
export function parseJson(bytes: Buffer): unknown {
  if (bytes.length === 0) throw unreadable('it is empty')
  if (!isUtf8(bytes)) throw unreadable('it is not UTF-8')
  checkShape(bytes)
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    throw unreadable(error instanceof Error ? firstSentence(error.message) : 'it cannot be read')
  }
}

/** Counts nesting and values outside strings; whether the text is JSON at all is for the parser to say. */
function checkShape(bytes: Buffer): void {
  let depth = 0
  let values = 0
  for (let at = 0; at < bytes.length; at++) {
    switch (bytes[at]) {
      case quote:
        at = endOfString(bytes, at + 1)
        break
      case openBrace:
      case openBracket:
        if (++depth > maxDepth) throw unreadable(`it is nested deeper than ${maxDepth} levels`)
        values++
        break
      case closeBrace:
      case closeBracket:
        depth--
        break
      case comma:
        values++
    }
    if (values > maxValues) throw unreadable(`it holds more than ${maxValues} values`)
  }
}

/** @returns where the closing quote stands, or the end of the text. */
function endOfString(bytes: Buffer, start: number): number {
  for (let at = bytes.indexOf(quote, start); at !== -1; at = bytes.indexOf(quote, at + 1)) {
    let backslashes = 0
    while (at - 1 - backslashes >= start && bytes[at - 1 - backslashes] === backslash) backslashes++
    if (backslashes % 2 === 0) return at
  }
  return bytes.length
}

/** The parser quotes what it stumbled over; that much of a body may be repeated to its sender, and no more. */
const firstSentence = (message: string): string => message.replaceAll(/\s+/g, ' ').slice(0, 120)

const unreadable = (problem: string): Refusal => new Refusal('parse_error', { problem })

/** Characters that some clients read as the end of a line, although JSON allows them in strings. */
const lineBreaks = /[\u0085\u2028\u2029]/g

/**
 * Escapes U+0085, U+2028 and U+2029 in a JSON text, which then means the same. Every format that is read line by line
 * needs this: Python's `splitlines` and many clients of server-sent events split at these characters.
 */
export const escapeLineBreaks = (json: string): string =>
  json.replace(lineBreaks, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
