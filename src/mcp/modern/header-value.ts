import { isUtf8 } from 'node:buffer'

/**
 * Whether a header says what the body says. A value that HTTP cannot carry as it is comes as `=?base64?…?=`; anything
 * that lacks either end of that form is meant literally.
 * https://modelcontextprotocol.io/seps/2243-http-standardization
 */
export function matches(given: string, expected: string): boolean {
  const value = decode(given.trim())
  return value !== undefined && value === expected
}

const opening = '=?base64?'
const closing = '?='
const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** @returns the value meant, or nothing when the form is not well made. */
function decode(value: string): string | undefined {
  if (!value.startsWith(opening) || !value.endsWith(closing) || value.length < opening.length + closing.length) {
    return value
  }
  const encoded = value.slice(opening.length, -closing.length)
  if (!base64.test(encoded)) return undefined
  const bytes = Buffer.from(encoded, 'base64')
  return isUtf8(bytes) ? bytes.toString('utf8') : undefined
}
