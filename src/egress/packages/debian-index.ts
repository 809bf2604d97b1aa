/** Reads the lists of packages of a Debian archive. Pure functions. */
import { createHash } from 'node:crypto'
import type { Checksum, ReadIndex } from './index-document.ts'

/** Twice as many as the largest list of Debian has, that of the sources of main. */
const filesMax = 262_144
const digestBytes = 32
/** The SHA-256 of the path of a file, and that of its content. */
const recordBytes = 2 * digestBytes

/**
 * BOUNDARY: reads `Packages` or `Sources`: https://wiki.debian.org/DebianRepository/Format
 * @returns a body of sorted records, as `checksumIn` finds them: one object for each file would be slow to pass to another thread.
 * @throws Error when it lists more than 262,144 files.
 */
export function readDebianIndex(text: string): ReadIndex {
  const records: Buffer[] = []
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf('\n\n', at)
    const paragraph = text.slice(at, end < 0 ? text.length : end)
    at = end < 0 ? text.length : end + 2
    for (const [path, hex] of filesOf(paragraph))
      records.push(Buffer.concat([digestOf(path), Buffer.from(hex, 'hex')], recordBytes))
    if (records.length > filesMax) throw new Error('it lists too many files')
  }
  records.sort((a, b) => a.compare(b, 0, digestBytes, 0, digestBytes))
  const body = Buffer.alloc(records.length * recordBytes)
  for (const [index, record] of records.entries()) record.copy(body, index * recordBytes)
  return { body, files: new Map() }
}

function filesOf(paragraph: string): [path: string, hex: string][] {
  const path = /^Filename: *(\S+)/m.exec(paragraph)?.[1]
  const hex = /^SHA256: *([0-9a-f]{64})\s*$/im.exec(paragraph)?.[1]
  if (path !== undefined) return hex === undefined ? [] : [[path, hex]]
  const directory = /^Directory: *(\S+)/m.exec(paragraph)?.[1]
  const listed = /^Checksums-Sha256:[^\n]*((?:\n [^\n]*)*)/im.exec(paragraph)?.[1] ?? ''
  if (directory === undefined) return []
  return [...listed.matchAll(/^ ([0-9a-f]{64}) \d+ (\S+)$/gim)].map(([, hex, name]) => [`${directory}/${name}`, hex!])
}

/** Returns the checksum that a list gives for a file. @param path below the archive. */
export function checksumIn({ body }: ReadIndex, path: string): Checksum | undefined {
  const records = Buffer.from(body.buffer, body.byteOffset, body.length)
  const wanted = digestOf(path)
  let low = 0
  for (let high = records.length / recordBytes; low < high; ) {
    const middle = (low + high) >>> 1
    const at = middle * recordBytes
    if (wanted.compare(records, at, at + digestBytes) > 0) low = middle + 1
    else high = middle
  }
  const record = records.subarray(low * recordBytes, (low + 1) * recordBytes)
  if (record.length === 0 || wanted.compare(record, 0, digestBytes) !== 0) return undefined
  return { algorithm: 'sha256', hex: record.toString('hex', digestBytes) }
}

const digestOf = (path: string): Buffer => createHash('sha256').update(path).digest()
