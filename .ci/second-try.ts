/** Prints the files of which something failed, one a line; none when so much failed that a second try says nothing. */
import { allFailed, readReport, secondTriesMax } from './report.ts'

const outcomes = readReport('build/test-report.json')
if (outcomes && allFailed(outcomes).length <= secondTriesMax)
  for (const [file, { failed }] of outcomes) if (failed.length > 0) console.log(file)
