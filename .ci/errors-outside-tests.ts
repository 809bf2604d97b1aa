/** Counts uncaught errors, which vitest's JSON report does not contain. */
import { writeFileSync } from 'node:fs'
import type { Reporter } from 'vitest/node'

export default class ErrorsOutsideTests implements Reporter {
  onTestRunEnd(_: unknown, errors: readonly unknown[]): void {
    if (errors.length > 0) writeFileSync('build/errors-outside-tests', `${errors.length}\n`)
  }
}
