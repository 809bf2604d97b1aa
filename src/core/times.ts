import { Refusal } from '../base/errors.ts'

/**
 * Checks a time, or a day, which means its start in UTC.
 * @returns the time as it is stored: ISO 8601, UTC.
 * @throws Refusal invalid_argument.
 */
export function checkTime(field: string, time: string | undefined): string | undefined {
  if (time === undefined) return undefined
  const isTime = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d))?$/.test(time)
  const atMs = isTime && isRealDay(time.slice(0, dayLength)) ? Date.parse(time) : Number.NaN
  if (!Number.isNaN(atMs)) return new Date(atMs).toISOString()
  throw new Refusal('invalid_argument', { field, problem: 'must be a date or time such as 2027-01-31T12:00:00Z' })
}

export const dayLength = 'yyyy-mm-dd'.length

/** Returns whether a day exists. `Date.parse` accepts `2027-02-30`, and reads it as the second of March. */
export function isRealDay(day: string): boolean {
  const atMs = Date.parse(`${day}T00:00:00Z`)
  return !Number.isNaN(atMs) && new Date(atMs).toISOString().startsWith(day)
}
