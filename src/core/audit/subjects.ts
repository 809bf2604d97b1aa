import { Refusal } from '../../base/errors.ts'

/** Longest name of a subject, in characters. */
export const subjectLimit = 256

/**
 * Checks the name of a subject: the person or case that a run belongs to.
 * @returns the name; `null` if the client sent no subject.
 * @param field name of the argument in the refusal.
 * @throws Refusal invalid_argument.
 */
export function checkSubject(field: string, subject: string | undefined): string | null {
  if (subject === undefined) return null
  if (subject.length <= subjectLimit && subject.isWellFormed() && /^[^\p{C}\p{Zl}\p{Zp}]+$/u.test(subject))
    return subject
  throw new Refusal('invalid_argument', { field, problem: `must be 1 to ${subjectLimit} printable characters` })
}
