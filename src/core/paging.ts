import { Refusal } from '../base/errors.ts'

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

/**
 * Reads one page.
 * @param keyOf the unique key that rows are ordered by.
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

/** Reads the page from query parameters. @throws Refusal invalid_argument. */
export function toPageRequest({ cursor, limit }: Readonly<Record<string, string>>): PageRequest {
  if (limit !== undefined && !/^\d{1,4}$/.test(limit)) {
    throw new Refusal('invalid_argument', {
      field: 'limit',
      problem: `must be a whole number from 1 to ${pageLimitMax}`,
    })
  }
  return { cursor, limit: limit === undefined ? undefined : Number(limit) }
}

const encode = (key: readonly string[]): string => Buffer.from(JSON.stringify(key)).toString('base64url')

function decode(cursor: string, length: number): string[] {
  try {
    const key: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'))
    if (Array.isArray(key) && key.length === length && key.every((part) => typeof part === 'string')) return key
  } catch {
    // Malformed; refused below.
  }
  throw new Refusal('invalid_argument', { field: 'cursor', problem: 'is not a cursor of an earlier page' })
}
