/** Reads the JSON report of vitest. */
import { readFileSync } from 'node:fs'
import { relative } from 'node:path'

export interface FileOutcome {
  passed: number
  skipped: number
  /** Those of the skipped tests whose packages could not be installed, because no package registry answered. */
  withoutRegistry: number
  /** Titles of failed tests, each with its file; the file alone when it could not be loaded or set up. */
  failed: string[]
}

/** How many tests may pass only at the second attempt. More are a defect of the tests or of the product. */
export const secondTriesMax = 5

/** How the titles of such tests end: test/clients/clients.test.ts gives them this end after it has asked the registry. */
const noRegistry = '(no package registry)'

interface VitestReport {
  testResults: {
    name: string
    status: string
    assertionResults: { ancestorTitles: string[]; title: string; status: string }[]
  }[]
}

/** @returns outcomes by path, relative to the working directory; `undefined` when the report cannot be read. */
export function readReport(path: string): Map<string, FileOutcome> | undefined {
  try {
    const { testResults } = JSON.parse(readFileSync(path, 'utf8')) as VitestReport
    return new Map(testResults.map((result) => [relative('.', result.name), outcomeOf(result)]))
  } catch (error) {
    console.error(`cannot read the test report: ${error instanceof Error ? error.message : error}`)
    return undefined
  }
}

function outcomeOf({ name, status, assertionResults }: VitestReport['testResults'][number]): FileOutcome {
  const file = relative('.', name)
  const failed = assertionResults
    .filter((test) => test.status === 'failed')
    .map(({ ancestorTitles, title }) => [file, ...ancestorTitles, title].filter(Boolean).join(' > '))
  const passed = assertionResults.filter((test) => test.status === 'passed').length
  const withoutRegistry = assertionResults.filter(
    ({ status, ancestorTitles }) =>
      status !== 'passed' && status !== 'failed' && ancestorTitles.some((title) => title.endsWith(noRegistry)),
  ).length
  const isBroken = status === 'failed' && failed.length === 0
  return {
    passed,
    skipped: isBroken ? 0 : assertionResults.length - passed - failed.length,
    withoutRegistry: isBroken ? 0 : withoutRegistry,
    failed: isBroken ? [file] : failed,
  }
}

export const allFailed = (outcomes: ReadonlyMap<string, FileOutcome>): string[] =>
  [...outcomes.values()].flatMap(({ failed }) => failed)
