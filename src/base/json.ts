import { isUtf8 } from 'node:buffer'
import { Refusal } from './errors.ts'

/** Deeper than any valid message, and far below what overflows the stack of a recursive function. */
const maxDepth = 64
/** Values in one body. A megabyte of code is one value; a million empty arrays are not a message. */
const maxValues = 100_000

/** Numbers with fewer digits are exact as they are parsed: 2^53 has 16. */
const exactDigits = 16
/** An integer that is longer than any database key is not worth preserving. */
const maxExactDigits = 64

const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf])
const zero = 0x30
const nine = 0x39
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
  const text = bytes[0] === byteOrderMark[0] && bytes.subarray(0, 3).equals(byteOrderMark) ? bytes.subarray(3) : bytes
  const hasLongNumber = checkShape(text, unreadable)
  try {
    return hasLongNumber ? parseExact(text.toString('utf8')) : JSON.parse(text.toString('utf8'))
  } catch (error) {
    throw unreadable(error instanceof Error ? firstSentence(error.message) : 'it cannot be read')
  }
}

/** A JSON text that is too large to be read: it would hold the event loop for seconds, and a hundred times its size in memory. */
export class TooManyValues extends SyntaxError {}

/**
 * BOUNDARY: reads a JSON text of a program that code in a sandbox or another server can pretend to be. Its shape is bounded
 * as in `parseJson`.
 * @throws TooManyValues; SyntaxError.
 */
export function parseForeignJson(text: string | Buffer): unknown {
  checkShape(typeof text === 'string' ? Buffer.from(text) : text, (problem) => new TooManyValues(problem))
  return JSON.parse(typeof text === 'string' ? text : text.toString('utf8'))
}

/**
 * Bounds nesting and the number of values. Does not check the syntax otherwise.
 * @param refused makes the error.
 * @returns whether a number has so many digits that a double may not represent it.
 */
function checkShape(bytes: Buffer, refused: (problem: string) => Error): boolean {
  let depth = 0
  let values = 0
  let digits = 0
  let hasLongNumber = false
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]!
    if (byte >= zero && byte <= nine) {
      if (++digits >= exactDigits) hasLongNumber = true
      continue
    }
    digits = 0
    switch (byte) {
      case quote:
        at = endOfString(bytes, at + 1)
        break
      case openBrace:
      case openBracket:
        if (++depth > maxDepth) throw refused(`it is nested deeper than ${maxDepth} levels`)
        values++
        break
      case closeBrace:
      case closeBracket:
        depth--
        break
      case comma:
        values++
    }
    if (values > maxValues) throw refused(`it holds more than ${maxValues} values`)
  }
  return hasLongNumber
}

/** Bytes that are looked at one by one after an escaped quote: where there are many, a search for each takes ten times as long. */
const escapedStretch = 256

/** Bytes of a string that are looked at one by one, before the rest is searched: calling the search takes as long as that. */
const shortString = 32

/** @returns where the closing quote stands, or the end of the text. */
function endOfString(bytes: Buffer, start: number): number {
  let at = start
  for (const near = Math.min(start + shortString, bytes.length); at < near; at++) {
    if (bytes[at] === quote) return at
    if (bytes[at] === backslash) at++
  }
  return endOfLongString(bytes, at)
}

function endOfLongString(bytes: Buffer, start: number): number {
  for (let at = bytes.indexOf(quote, start); at !== -1; at = bytes.indexOf(quote, at)) {
    let backslashes = 0
    while (at - 1 - backslashes >= start && bytes[at - 1 - backslashes] === backslash) backslashes++
    if (backslashes % 2 === 0) return at
    const end = Math.min(++at + escapedStretch, bytes.length)
    while (at < end && bytes[at] !== quote) at += bytes[at] === backslash ? 2 : 1
    if (at < end) return at
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

/** An integer beyond 2^53 with its digits. `JSON.stringify` writes it unchanged. */
export interface ExactInteger {
  readonly rawJSON: string
}

/** https://tc39.es/proposal-json-parse-with-source/, which Node has and the types of TypeScript do not. */
const exactJson = JSON as unknown as {
  parse(text: string, reviver: (key: string, value: unknown, context: { source?: string }) => unknown): unknown
  rawJSON(text: string): ExactInteger
  isRawJSON(value: unknown): value is ExactInteger
}

/**
 * Parses a JSON text and keeps integers that a double cannot represent.
 * @throws SyntaxError.
 */
export const parseExact = (text: string): unknown =>
  exactJson.parse(text, (_key, value, { source }) =>
    typeof value === 'number' && !Number.isSafeInteger(value) && isExactInteger(source ?? '')
      ? exactJson.rawJSON(source ?? '')
      : value,
  )

const isExactInteger = (source: string): boolean => source.length <= maxExactDigits && /^-?\d+$/.test(source)

export const isExact = (value: unknown): value is ExactInteger => exactJson.isRawJSON(value)
