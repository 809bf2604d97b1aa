import { Refusal } from '../../base/errors.ts'

/** Longest name of a subject, in characters. */
export const subjectLimit = 256

/**
 * Who or what a run is for, in the client's own words: nothing but a name to us.
 * @param field as the client calls it.
 * @throws Refusal invalid_argument.
 */
export function checkSubject(field: string, subject: string | undefined): string | null {
  if (subject === undefined) return null
  if (subject.length <= subjectLimit && subject.isWellFormed() && /^[^\p{C}\p{Zl}\p{Zp}]+$/u.test(subject))
    return subject
  throw new Refusal('invalid_argument', { field, problem: `must be 1 to ${subjectLimit} printable characters` })
}
