/** What stands behind the `?` of a request. */
import { Refusal } from '../base/errors.ts'
import { type PageRequest, toPageRequest } from '../core/paging.ts'

/**
 * BOUNDARY: a query has no other words than these, each once.
 * @param prefix of further ones.
 * @throws Refusal invalid_argument.
 */
export function readQuery(query: unknown, known: readonly string[], prefix?: string): Record<string, string> {
  const read: Record<string, string> = Object.create(null) as Record<string, string>
  for (const [name, value] of Object.entries(query as Record<string, unknown>)) {
    const field = name.slice(0, 64)
    if (!known.includes(name) && !(prefix !== undefined && name.startsWith(prefix) && name !== prefix)) {
      const names = [...known, ...(prefix === undefined ? [] : [`${prefix}KEY`])]
      const problem = names.length === 0 ? 'there are none here' : `known are ${names.join(', ')}`
      throw new Refusal('invalid_argument', { field, problem: `is not a parameter; ${problem}` })
    }
    if (typeof value !== 'string') throw new Refusal('invalid_argument', { field, problem: 'must be given once' })
    read[name] = value
  }
  return read
}

/** The words that ask for a part of a list. */
export const pageWords = ['cursor', 'limit'] as const

/** Which part of a list a query asks for; it may say nothing else. @throws Refusal invalid_argument. */
export const pageAsked = ({ query }: { query: unknown }): PageRequest => toPageRequest(readQuery(query, pageWords))
