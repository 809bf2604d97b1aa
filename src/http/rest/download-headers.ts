import type { IncomingHttpHeaders } from 'node:http'
import { parse as parseRange } from 'range-parser'
import { wallMs } from '../../base/clock.ts'
import type { FileRange, FileStatus } from '../../core/storage/files.ts'

/** Opened from a web page, what has these headers reaches nothing of this server, even in a browser that shows it. */
export const isolated = {
  'content-security-policy': "sandbox; default-src 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
} as const

/** The ETag of a file. Weak, since a program can write other bytes and set the time back: RFC 9110, section 8.8.1. */
export const etagOf = ({ sizeBytes, modifiedMs }: FileStatus): string =>
  `W/"${sizeBytes.toString(16)}-${Math.trunc(modifiedMs).toString(16)}"`

/** Resolution of Last-Modified. */
const secondMs = 1_000

/**
 * Returns the Last-Modified of a file; `undefined` for one that was written just now: a program can write it again within
 * the second that the header resolves, and If-Modified-Since would not notice.
 */
export function lastModifiedOf({ modifiedMs }: FileStatus): string | undefined {
  return wallMs() - modifiedMs < 2 * secondMs ? undefined : new Date(modifiedMs).toUTCString()
}

/**
 * Returns the Content-Disposition that saves a file instead of showing it: RFC 6266, and RFC 8187 for `filename*`.
 * @param path the last part of which becomes the file name.
 */
export function attachment(path: string): string {
  const name = path.split('/').at(-1) ?? ''
  const plain = name.replaceAll(/[^\x20-\x7e]|["\\%]/g, '_')
  const encoded = encodeURIComponent(name.toWellFormed()).replaceAll(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return plain === name
    ? `attachment; filename="${plain}"`
    : `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`
}

/**
 * Returns the range that a request selects: RFC 9110, section 14. Several ranges, other units, and ranges that depend
 * on If-Range are ignored, the last since our ETags are weak.
 * @returns `undefined` for the whole file.
 */
export function readRange(
  { range, 'if-range': condition }: IncomingHttpHeaders,
  sizeBytes: number,
): FileRange | 'unsatisfiable' | undefined {
  if (range === undefined || condition !== undefined) return undefined
  const { type, code, ranges } = parseRange(sizeBytes, range)
  const isMalformed = (code & 1) !== 0
  if (type !== 'bytes' || isMalformed || ranges.length > 1) return undefined
  const [selected] = ranges
  if (selected) return { offset: selected.start, lengthBytes: selected.end - selected.start + 1 }
  return code === 0 ? undefined : 'unsatisfiable'
}
