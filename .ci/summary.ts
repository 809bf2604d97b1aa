/** Reads the report of the tests, prints the count, and exits non-zero unless everything held. */
import { readFileSync } from 'node:fs'

/**
 * Tests that may be skipped on the machine that checks every change; more is a failure. They are attacks that its kernel
 * refuses without any wall, too (test/security/cannot-gain-privilege.test.ts): eleven with each of two runtimes.
 */
const skippedMax = 22

interface Report {
  success: boolean
  numPassedTests: number
  numFailedTests: number
  numPendingTests: number
  numTodoTests: number
}

const [testsStatus, checkStatus] = process.argv.slice(2).map(Number)
const report = readReport()
const skipped = report.numPendingTests + report.numTodoTests

let failed = report.numFailedTests
// A suite that could not be loaded, or an error outside of any test, fails the run without a failed test.
if (failed === 0 && (testsStatus !== 0 || !report.success)) failed += 1
if (checkStatus !== 0) {
  console.log('npm run check failed; see above')
  failed += 1
}
if (skipped > skippedMax) {
  console.log(`${skipped} tests were skipped where at most ${skippedMax} are expected (.ci/summary.ts)`)
}

console.log(`${report.numPassedTests} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`)
process.exit(failed === 0 && skipped <= skippedMax && report.numPassedTests > 0 ? 0 : 1)

function readReport(): Report {
  try {
    return JSON.parse(readFileSync('build/test-report.json', 'utf8')) as Report
  } catch (error) {
    console.log(`no report of the tests: ${error instanceof Error ? error.message : error}`)
    return { success: false, numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0 }
  }
}
