/**
 * Reads the test reports, prints the number of passed, failed and skipped tests, and exits with 1 on any failure.
 *   summary.ts TESTS_STATUS SECOND_STATUS|none CHECK_STATUS
 */
import { existsSync } from 'node:fs'
import { allFailed, readReport, secondTriesMax } from './report.ts'

/**
 * How many tests may be skipped on the machine that checks every change. They are attacks that its kernel blocks even
 * without a sandbox (test/security/cannot-gain-privilege.test.ts): eleven with each of two runtimes; and gVisor, where runsc is not installed.
 */
const skippedMax = 23

const [testsStatus, secondStatus, checkStatus] = process.argv.slice(2)
const first = readReport('build/test-report.json') ?? new Map()
const second = secondStatus === 'none' ? new Map() : (readReport('build/second-report.json') ?? new Map())
const last = new Map([...first, ...second])
const sum = (what: 'passed' | 'skipped' | 'withoutRegistry') =>
  [...last.values()].reduce((sum, outcome) => sum + outcome[what], 0)

const stillFailing = new Set(allFailed(last))
const secondTries = allFailed(first).filter((title) => !stillFailing.has(title))
for (const title of secondTries) console.log(`needed a second try: ${title}`)

let failed = stillFailing.size
const unexplained = secondStatus === 'none' ? testsStatus : secondStatus
if ((failed === 0 && unexplained !== '0') || existsSync('build/errors-outside-tests')) {
  console.log('an error occurred outside the tests; see above')
  failed += 1
}
if (checkStatus !== '0') {
  console.log('npm run check failed; see above')
  failed += 1
}
// Without a registry the tests of foreign clients are skipped, however many there are; with one, none may be.
const skippedHere = sum('skipped') - sum('withoutRegistry')
if (sum('withoutRegistry') > 0)
  console.log(`${sum('withoutRegistry')} tests of clients were skipped: no package registry can be reached`)
if (skippedHere > skippedMax)
  console.log(`${skippedHere} tests were skipped, at most ${skippedMax} are allowed (.ci/summary.ts)`)
if (secondTries.length > secondTriesMax)
  console.log(`${secondTries.length} tests needed a second try, at most ${secondTriesMax} are allowed (.ci/report.ts)`)

const counts = [`${sum('passed')} passed`, `${failed} failed`]
if (sum('skipped') > 0) counts.push(`${sum('skipped')} skipped`)
console.log(counts.join(', '))
const holds = failed === 0 && skippedHere <= skippedMax && secondTries.length <= secondTriesMax
process.exit(holds && sum('passed') > 0 ? 0 : 1)
