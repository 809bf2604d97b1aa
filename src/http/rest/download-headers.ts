import type { IncomingHttpHeaders } from 'node:http'
import type { FileRange, FileStatus } from '../../core/storage/files.ts'

/** Weak: a program may write other bytes and set the time back. RFC 9110, section 8.8.1. */
export const etagOf = ({ sizeBytes, modifiedMs }: FileStatus): string =>
  `W/"${sizeBytes.toString(16)}-${Math.trunc(modifiedMs).toString(16)}"`

/**
 * Names the file as something to be saved, never shown. RFC 6266, and RFC 8187 for what is not ASCII.
 * @param path whose last part is the name.
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
 * The part that a request asks for. RFC 9110, section 14: what is no single byte range is ignored, and so is one that
 * depends on an entity tag, since ours are weak.
 * @returns nothing where the whole file is asked for.
 */
export function readRange(
  { range, 'if-range': condition }: IncomingHttpHeaders,
  sizeBytes: number,
): FileRange | 'unsatisfiable' | undefined {
  const [, first = '', last = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(range ?? '') ?? []
  if (condition !== undefined || (first === '' && last === '')) return undefined
  if (first === '') {
    const lengthBytes = Math.min(Number(last), sizeBytes)
    return lengthBytes === 0 ? 'unsatisfiable' : { offset: sizeBytes - lengthBytes, lengthBytes }
  }
  const offset = Number(first)
  const end = last === '' ? sizeBytes - 1 : Math.min(Number(last), sizeBytes - 1)
  if (last !== '' && Number(last) < offset) return undefined
  return offset >= sizeBytes ? 'unsatisfiable' : { offset, lengthBytes: end - offset + 1 }
}
