import { timestamp } from '../base/clock.ts'
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

export const dayMs = 86_400_000
/** The default period and the longest period of a usage query, in days. */
const daysDefault = 30
const daysMax = 366

/** Returns the start of a day such as `2027-01-31`, in ms; of today if it is absent. @throws Refusal invalid_argument. */
export function dayMsOf(field: string, text = timestamp().slice(0, dayLength)): number {
  const atMs = /^\d{4}-\d\d-\d\d$/.test(text) && isRealDay(text) ? Date.parse(text) : Number.NaN
  if (!Number.isNaN(atMs)) return atMs
  throw new Refusal('invalid_argument', { field, problem: 'must be a date such as 2027-01-31' })
}

/**
 * Returns the period of a usage query, as days.
 * @param first name and value of the field with the first day; by default the period has 30 days.
 * @param end name of the field with the end, and the start of the day after the last one in ms.
 * @throws Refusal invalid_argument if the period is empty or longer than 366 days.
 */
export function toPeriod(
  first: { field: string; text: string | undefined },
  end: { field: string; untilMs: number },
): { from: string; until: string } {
  const { untilMs } = end
  const fromMs = first.text === undefined ? untilMs - daysDefault * dayMs : dayMsOf(first.field, first.text)
  if (fromMs > untilMs || untilMs - fromMs > daysMax * dayMs) {
    const problem = `must be at most ${daysMax} days before ${end.field}, and not after it`
    throw new Refusal('invalid_argument', { field: first.field, problem })
  }
  const day = (ms: number) => new Date(ms).toISOString().slice(0, dayLength)
  return { from: day(fromMs), until: day(untilMs) }
}
