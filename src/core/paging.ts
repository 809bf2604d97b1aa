import { Refusal } from '../base/errors.ts'

/** A part of a long list. */
export interface Page<Item> {
  items: Item[]
  /** Where the next part begins; `null` at the end. */
  nextCursor: string | null
}

/** Which part is asked for, as a client says it. */
export interface PageRequest {
  cursor?: string | undefined
  limit?: number | undefined
}

const limitDefault = 50
const pageLimitMax = 200

/**
 * Reads one page.
 * @param keyOf what rows are ordered by, each different from every other.
 * @param first comes before every row.
 * @param read rows after that one, so many at most.
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

/** The words of a query that ask for a part. @throws Refusal invalid_argument. */
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
    // Not one of ours.
  }
  throw new Refusal('invalid_argument', { field: 'cursor', problem: 'is not a cursor that an earlier page gave' })
}
