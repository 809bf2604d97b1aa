import { Refusal } from './errors.ts'

/** System errors that mean that the disk of the server cannot store data, in words for a caller and an operator. */
export const diskProblems = {
  ENOSPC: 'no space or no inodes are left on its disk',
  EDQUOT: 'its disk quota is used up',
  EROFS: 'its filesystem is read-only',
  EIO: 'its disk reports input/output errors',
} as const satisfies Readonly<Record<string, string>>

/** Describes an error that the disk caused, also as the cause of another error; `undefined` for any other error. */
export function diskProblemOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined
  if (error instanceof Refusal && error.code === 'disk_unavailable') return String(error.details.problem)
  const code = String(Reflect.get(error, 'code'))
  return Object.hasOwn(diskProblems, code)
    ? diskProblems[code as keyof typeof diskProblems]
    : diskProblemOf(error.cause)
}

/** Returns the refusal for an error that the disk caused, with the error as its cause; `undefined` for any other error. */
export function diskRefusalOf(error: unknown): Refusal | undefined {
  const problem = diskProblemOf(error)
  return problem === undefined ? undefined : diskRefusal(problem, error)
}

/** @param problem completes "The server cannot store data now: ...". */
export function diskRefusal(problem: string, cause: unknown): Refusal {
  const refusal = new Refusal('disk_unavailable', { problem })
  refusal.cause = cause
  return refusal
}
