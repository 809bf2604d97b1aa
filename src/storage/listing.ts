import { Refusal } from '../base/errors.ts'
import { codeOf, kernel } from '../kernel/kernel.ts'
import { parsePath } from './paths.ts'
import { openDirectory, refusing, type Status, toStatus } from './walk.ts'

export interface Entry extends Status {
  name: string
}

export interface Listing {
  /** Entries in the order of the disk. */
  entries: Entry[]
  /** Number of entries whose names are not UTF-8. No path can name them; deleting their directory deletes them. */
  unnamed: number
  /** Cursor of the next part; `undefined` at the end. */
  cursor: string | undefined
}

/** An entry of a directory as it is stored on the disk. */
export interface RawEntry {
  name: Buffer
  /** Position after this entry in the directory. */
  cookie: string
}

const listMax = 1_000
/** Positions in directories are signed: https://man7.org/linux/man-pages/man2/getdents.2.html */
const cookieMax = 2n ** 63n - 1n
const roomBytes = 32_768
/** Number of concurrent status calls: enough to keep the thread pool busy, few enough to leave threads to others. */
const statBatch = 32

/**
 * Lists a part of a directory.
 * @param cursor of an earlier part. Names that exist during the whole listing are listed exactly once.
 * @param limit maximum number of entries, 1 to 1,000.
 * @throws Refusal path_not_found, not_a_directory, path_invalid.
 */
export async function listDirectory(root: number, path: string, cursor = '0', limit = listMax): Promise<Listing> {
  if (!/^\d{1,19}$/.test(cursor) || BigInt(cursor) > cookieMax)
    throw new Refusal('invalid_argument', { field: 'cursor', problem: 'is not a cursor' })
  const parsed = parsePath(path)
  await using directory = await openDirectory(root, parsed)
  const listing: Listing = { entries: [], unnamed: 0, cursor }
  const wanted = Math.min(Math.max(1, limit), listMax)
  while (listing.entries.length + listing.unnamed < wanted) {
    const raw = await refusing(parsed, readEntries(directory.fd, listing.cursor ?? '0'))
    if (raw.length === 0) return { ...listing, cursor: undefined }
    await describe(directory.fd, raw.slice(0, wanted - listing.entries.length - listing.unnamed), listing)
  }
  return listing
}

async function describe(directory: number, raw: readonly RawEntry[], listing: Listing): Promise<void> {
  for (let at = 0; at < raw.length; at += statBatch) {
    const found = await Promise.all(raw.slice(at, at + statBatch).map((entry) => describeOne(directory, entry)))
    for (const entry of found) {
      if (entry === 'unnamed') listing.unnamed += 1
      else if (entry) listing.entries.push(entry)
    }
  }
  listing.cursor = raw.at(-1)?.cookie ?? listing.cursor
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

async function describeOne(directory: number, { name }: RawEntry): Promise<Entry | 'unnamed' | undefined> {
  let text: string
  try {
    text = decoder.decode(name)
  } catch {
    return 'unnamed'
  }
  try {
    return { name: text, ...toStatus(await kernel.statName(directory, name)) }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined // Removed meanwhile.
    throw error
  }
}

/** Returns the entries of one read without "." and ".."; none at the end. */
export async function readEntries(directory: number, cookie: string): Promise<RawEntry[]> {
  for (let from = cookie; ; ) {
    const packed = await kernel.readDirectory(directory, Buffer.from(from), roomBytes)
    const { entries, last } = unpack(packed)
    if (entries.length > 0 || last === undefined) return entries
    from = last
  }
}

/** getdents64(2): inode u64, offset i64, record length u16, type u8, name to NUL. */
function unpack(packed: Buffer): { entries: RawEntry[]; last: string | undefined } {
  const entries: RawEntry[] = []
  let last: string | undefined
  for (let at = 0; at < packed.length; ) {
    const recordBytes = packed.readUInt16LE(at + 16)
    const field = packed.subarray(at + 19, at + recordBytes)
    const name = field.subarray(0, field.indexOf(0))
    last = packed.readBigInt64LE(at + 8).toString()
    if (!isDots(name)) entries.push({ name: Buffer.from(name), cookie: last })
    at += recordBytes
  }
  return { entries, last }
}

const isDots = (name: Buffer): boolean => name.every((byte) => byte === 0x2e) && name.length <= 2
