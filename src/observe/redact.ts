/**
 * What never reaches a log: credentials, variables and source text of callers. Works on any value, however nested,
 * cyclic or hostile, and returns plain data of bounded size.
 */

import { Redactor } from '../base/redaction/redactor.ts'

export const hidden = '[hidden]'

/** Names whose value is hidden wherever they stand; compared in lower case with `-` and `_` left out. */
export const hiddenNames: ReadonlySet<string> = new Set([
  // Credentials, as headers and as fields
  'authorization',
  'proxyauthorization',
  'xapikey',
  'apikey',
  'cookie',
  'setcookie',
  'password',
  'passwd',
  'secret',
  'secrethash',
  'clientsecret',
  'token',
  'accesstoken',
  'refreshtoken',
  'privatekey',
  // Variables of a run
  'env',
  'envvars',
  'environment',
  // What a caller sends to run, and what it prints
  'code',
  'stdin',
  'stdout',
  'stderr',
  'metadata',
])

/** Secrets that are recognised by their own shape, in whatever text they stand. */
const hiddenShapes: readonly [RegExp, string][] = [
  // Our keys, and those of the providers that share the form
  [/\bsk-[A-Za-z0-9_-]{6,}/g, `sk-${hidden}`],
  [/\b(gba|msb|whsec)_[A-Za-z0-9_-]{6,}/g, `$1_${hidden}`],
  // A signed link is as good as a key for what it names
  [/\/v1\/blobs\/[^\s"?#]+/g, `/v1/blobs/${hidden}`],
  [/\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}/gi, `$1 ${hidden}`],
  // Credentials inside an address
  [/\b([a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/@:"\\]*:[^\s/@"\\]*@/gi, `$1${hidden}@`],
]

const maxDepth = 8
const maxEntries = 200
/** Longer text is cut: one line of a log must not carry a body. */
const maxTextLength = 8192

function redactText(text: string): string {
  let masked = text
  for (const [shape, replacement] of hiddenShapes) masked = masked.replaceAll(shape, replacement)
  return shared.redact(masked).text
}

/** The rules for the results of tools apply to logs as well, after the stricter ones above. */
const shared = new Redactor()

/** A copy that is fit for a log. Never throws, whatever the value does when it is read. */
export function redact(value: unknown): unknown {
  return copy(value, 0, [])
}

/** One finished line of a log, a JSON object and its line break, as it may be written. */
export function redactLine(line: string): string {
  try {
    return `${JSON.stringify(redact(JSON.parse(line)))}\n`
  } catch {
    return `${JSON.stringify({ level: 'error', msg: '[a line that was not JSON was left out]' })}\n`
  }
}

function copy(value: unknown, depth: number, above: readonly object[]): unknown {
  if (typeof value === 'string') return shortText(value)
  if (typeof value === 'bigint') return value.toString()
  if (typeof value === 'function' || typeof value === 'symbol') return `[${typeof value}]`
  if (typeof value !== 'object' || value === null) return value
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return `[${value.byteLength} bytes]`
  if (above.includes(value)) return '[circular]'
  if (depth >= maxDepth) return '[deeper]'
  const path = [...above, value]
  try {
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString()
    if (value instanceof URL) return shortText(value.href)
    if (value instanceof Error) return copyError(value, depth, path)
    // How a Buffer writes itself as JSON
    if ('type' in value && value.type === 'Buffer' && 'data' in value) return '[bytes]'
    if (Array.isArray(value)) return value.slice(0, maxEntries).map((item) => copy(item, depth + 1, path))
    if (value instanceof Map)
      return copyEntries(
        [...value].map(([name, item]) => [String(name), item]),
        depth,
        path,
      )
    if (value instanceof Set) return [...value].slice(0, maxEntries).map((item) => copy(item, depth + 1, path))
    return copyEntries(Object.entries(value), depth, path)
  } catch {
    return '[unreadable]'
  }
}

function copyEntries(entries: [string, unknown][], depth: number, path: readonly object[]): unknown {
  if (isSpelledOutBytes(entries)) return `[${entries.length} bytes]`
  const plain: Record<string, unknown> = {}
  for (const [name, item] of entries.slice(0, maxEntries)) {
    const safeName = name === '__proto__' ? '[__proto__]' : shortText(name)
    plain[safeName] = isHidden(name, item) ? hidden : copy(item, depth + 1, path)
  }
  return plain
}

/** Errors keep their stack, their causes and what was attached to them; the `code` of a system error is kept as `error_code`. */
function copyError(error: Error, depth: number, path: readonly object[]): Record<string, unknown> {
  const plain: Record<string, unknown> = {
    type: shortText(error.name),
    message: shortText(error.message),
    stack: shortText(error.stack ?? ''),
    ...(copyEntries(
      Object.entries(error).filter(([name]) => name !== 'code'),
      depth,
      path,
    ) as object),
  }
  if ('code' in error && typeof error.code === 'string' && /^[A-Za-z0-9_]{1,64}$/.test(error.code))
    plain.error_code = error.code
  if (error.cause !== undefined) plain.cause = copy(error.cause, depth + 1, path)
  if (error instanceof AggregateError) plain.errors = copy(error.errors, depth + 1, path)
  return plain
}

/** How JSON writes a byte array: `{"0":112,"1":114,…}`. */
function isSpelledOutBytes(entries: [string, unknown][]): boolean {
  return entries.length > 0 && entries.every(([name, item], index) => name === `${index}` && typeof item === 'number')
}

function isHidden(name: string, value: unknown): boolean {
  if (value === null || value === undefined) return false
  // Exit codes and sizes carry these names too, and a number is no secret.
  if (typeof value === 'number' || typeof value === 'boolean') return false
  return hiddenNames.has(name.toLowerCase().replaceAll(/[-_]/g, ''))
}

function shortText(text: string): string {
  const cut = text.length > maxTextLength ? `${text.slice(0, maxTextLength)}… (${text.length} characters)` : text
  return redactText(cut)
}
