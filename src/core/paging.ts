import { setImmediate } from 'node:timers/promises'
import { Refusal } from '../base/errors.ts'
import type { Slice } from '../store/slice.ts'

/** One page of a list. */
export interface Page<Item> {
  items: Item[]
  /** Cursor of the next page; `null` on the last one. */
  nextCursor: string | null
}

/** The page that a client requests. */
export interface PageRequest {
  cursor?: string | undefined
  limit?: number | undefined
}

const limitDefault = 50
const pageLimitMax = 200
/** Maximum number of slices of one page. Other work can run between two slices. */
const slicesMax = 20

/**
 * Reads one page.
 * @param keyOf returns the unique key by which rows are ordered.
 * @param first a key before every row.
 * @param read reads up to `limit` rows after a key.
 * @throws Refusal invalid_argument.
 */
export async function page<Row, Key extends [string] | [string, string]>(
  { cursor, limit = limitDefault }: PageRequest,
  first: Key,
  keyOf: (row: Row) => Key,
  read: (after: Key, limit: number) => Promise<Row[]>,
): Promise<Page<Row>> {
  if (!Number.isInteger(limit) || limit < 1 || limit > pageLimitMax) {
    throw new Refusal('invalid_argument', {
      field: 'limit',
      problem: `must be a whole number from 1 to ${pageLimitMax}`,
    })
  }
  const rows = await read(cursor === undefined ? first : (decode(cursor, first.length) as unknown as Key), limit + 1)
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return { items, nextCursor: rows.length > limit && last !== undefined ? encode(keyOf(last)) : null }
}

/**
 * Reads one page of a search that scans a bounded number of rows at a time. A page can have fewer items than its limit, or
 * none, and still have a next page.
 * @param first a key before every row.
 * @param keys return the unique key by which rows are ordered, of a row and of a position between rows.
 * @param search returns up to `limit` rows after a key.
 * @throws Refusal invalid_argument.
 */
export async function searchPage<Row, Position, Key extends [string] | [string, string]>(
  { limit = limitDefault, ...request }: PageRequest,
  first: Key,
  keys: { ofRow: (row: Row) => Key; ofPosition: (position: Position) => Key },
  search: (after: Key, limit: number) => Promise<Slice<Row, Position>>,
): Promise<Page<Row>> {
  const found: Row[] = []
  let resumeAt: Key | undefined
  const read = async (after: Key, rowsMax: number): Promise<Row[]> => {
    let from = after
    for (let slice = 1; ; slice++) {
      const { rows, resumeAfter } = await search(from, rowsMax - found.length)
      found.push(...rows)
      if (resumeAfter === undefined || found.length >= rowsMax) return found
      if (slice === slicesMax) {
        resumeAt = keys.ofPosition(resumeAfter)
        return found
      }
      from = keys.ofPosition(resumeAfter)
      await setImmediate()
    }
  }
  const result = await page({ limit, ...request }, first, keys.ofRow, read)
  return result.nextCursor === null && resumeAt !== undefined ? { ...result, nextCursor: encode(resumeAt) } : result
}

/** Reads the page from query parameters. @throws Refusal invalid_argument. */
export function toPageRequest({ cursor, limit }: Readonly<Record<string, string>>): PageRequest {
  if (limit !== undefined && !/^\d{1,4}$/.test(limit)) {
    throw new Refusal('invalid_argument', {
      field: 'limit',
      problem: `must be a whole number from 1 to ${pageLimitMax}`,
    })
  }
  // An empty cursor is treated as absent, since scripts send it for the first page.
  return { cursor: cursor || undefined, limit: limit === undefined ? undefined : Number(limit) }
}

const encode = (key: readonly string[]): string => Buffer.from(JSON.stringify(key)).toString('base64url')

function decode(cursor: string, length: number): string[] {
  try {
    const key: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'))
    const isKey = Array.isArray(key) && key.length === length && key.every((part) => typeof part === 'string')
    // Accepts only the text that `encode` produces.
    if (isKey && encode(key) === cursor) return key
  } catch {
    // Malformed; refused below.
  }
  throw new Refusal('invalid_argument', { field: 'cursor', problem: 'is not a cursor of an earlier page' })
}
