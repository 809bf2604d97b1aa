import { Refusal } from '../base/errors.ts'

/** Descriptions of the parameters of every paged list. */
export const pageParameters = {
  cursor: 'The next_cursor of the previous page.',
  limit: 'Maximum number of items per page, 1 to 200; 50 by default.',
}

/** Marks a parameter that stands for every name with its prefix: `metadata.KEY` for `metadata.customer` and all others. */
const openSuffix = '.KEY'

/**
 * BOUNDARY: reads the query of a request, each parameter at most once.
 * @param parameters the parameters that are known, by name.
 * @throws Refusal invalid_argument.
 */
export function readQuery(query: unknown, parameters: Readonly<Record<string, string>>): Record<string, string> {
  const read: Record<string, string> = Object.create(null) as Record<string, string>
  for (const [name, value] of Object.entries(query as Record<string, unknown>)) {
    const field = name.slice(0, 64)
    if (!isKnown(name, parameters)) {
      const names = Object.keys(parameters)
      const problem = names.length === 0 ? 'this operation has none' : `known are ${names.join(', ')}`
      throw new Refusal('invalid_argument', { field, problem: `is not a parameter; ${problem}` })
    }
    if (typeof value !== 'string') throw new Refusal('invalid_argument', { field, problem: 'must be given once' })
    read[name] = value
  }
  return read
}

const isKnown = (name: string, parameters: Readonly<Record<string, string>>): boolean =>
  Object.hasOwn(parameters, name) ||
  Object.keys(parameters).some((known) => {
    const prefix = known.endsWith(openSuffix) ? known.slice(0, 1 - openSuffix.length) : name
    return name.startsWith(prefix) && name !== prefix
  })
