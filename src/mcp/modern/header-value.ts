import { isUtf8 } from 'node:buffer'

/**
 * Whether a header equals the value in the body. Values that HTTP cannot carry are encoded as `=?base64?…?=`; anything
 * without that prefix and suffix is literal.
 * https://modelcontextprotocol.io/seps/2243-http-standardization
 */
export function headerMatches(given: string, expected: string): boolean {
  const value = decode(given.trim())
  return value !== undefined && value === expected
}

const opening = '=?base64?'
const closing = '?='
const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** @returns the decoded value, or `undefined` for invalid base64 or UTF-8. */
function decode(value: string): string | undefined {
  if (!value.startsWith(opening) || !value.endsWith(closing) || value.length < opening.length + closing.length) {
    return value
  }
  const encoded = value.slice(opening.length, -closing.length)
  if (!base64.test(encoded)) return undefined
  const bytes = Buffer.from(encoded, 'base64')
  return isUtf8(bytes) ? bytes.toString('utf8') : undefined
}
