/** Prints the files with failed tests, one per line; nothing when too many failed for a second attempt. */
import { allFailed, readReport, secondTriesMax } from './report.ts'

const outcomes = readReport('build/test-report.json')
if (outcomes && allFailed(outcomes).length <= secondTriesMax)
  for (const [file, { failed }] of outcomes) if (failed.length > 0) console.log(file)
