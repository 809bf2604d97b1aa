import { Refusal } from '../base/errors.ts'
import { isObject, isRequestId, own, type Params, type RequestId } from './json-rpc/message.ts'

/**
 * Reads the parameters of a request. BOUNDARY: names, URIs and tokens of a client reach the rest of the product only
 * through these functions.
 */

/** @param field the name in the error message. @throws Refusal `invalid_argument`. */
export function stringParam(params: Params, name: string, field = name): string {
  const value = own(params, name)
  if (typeof value !== 'string') throw invalidParam(field, 'must be a string')
  return value
}

/** @throws Refusal `invalid_argument`. */
export function objectParam(params: Params, name: string): Params {
  const value = own(params, name)
  if (!isObject(value)) throw invalidParam(name, 'must be an object')
  return value
}

/** @throws Refusal `invalid_argument`. */
export function optionalObjectParam(params: Params, name: string): Params {
  return (own(params, name) ?? undefined) === undefined ? {} : objectParam(params, name)
}

/** Longest string of a list: longer than the URI of usual resources. */
const maxItemLength = 2_048

/**
 * Reads a list of strings and removes duplicates.
 * @throws Refusal `invalid_argument` when it has more than `maxItems`.
 */
export function stringListParam(params: Params, name: string, field: string, maxItems: number): string[] | undefined {
  const value = own(params, name)
  if (value === undefined || value === null) return undefined
  const isShort = (item: unknown) => typeof item === 'string' && item.length <= maxItemLength
  const isValid = Array.isArray(value) && value.length <= maxItems && value.every(isShort)
  if (!isValid)
    throw invalidParam(field, `must be a list of at most ${maxItems} strings of at most ${maxItemLength} characters`)
  return [...new Set(value as string[])]
}

/** Returns the token that progress notifications of this request carry, if the client wants any. */
export function progressTokenOf(meta: unknown): RequestId | undefined {
  const token = isObject(meta) ? own(meta, 'progressToken') : undefined
  return isRequestId(token) ? token : undefined
}

export const invalidParam = (field: string, problem: string): Refusal =>
  new Refusal('invalid_argument', { field, problem })
