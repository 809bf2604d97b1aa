import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const root = fileURLToPath(new URL('../../', import.meta.url))

describe('set-up', () => {
  const runSetUp = (...words: string[]) => spawnSync('sh', [join(root, 'setup/run.sh'), ...words], { encoding: 'utf8' })

  it('does nothing and says nothing when nothing changed', () => {
    const ended = runSetUp('docs', '--check')
    expect([ended.status, ended.stdout, ended.stderr]).toEqual([0, '', ''])
  })

  it('names the commands that there are', () => {
    expect(runSetUp()).toMatchObject({ status: 64, stderr: expect.stringMatching(/start, test, check, bench or docs/) })
    expect(runSetUp('strat')).toMatchObject({ status: 64, stderr: expect.stringContaining('strat') })
  })

  it('pins every package to one version', () => {
    const { dependencies, devDependencies, optionalDependencies } = JSON.parse(
      readFileSync(join(root, 'package.json'), 'utf8'),
    )
    for (const [name, wanted] of Object.entries({ ...dependencies, ...devDependencies, ...optionalDependencies })) {
      expect([name, wanted]).toEqual([name, expect.stringMatching(/^\d+\.\d+\.\d+(?:-[a-z]+\.\d+)?$/)])
    }
  })
})

describe('the count at the end of .ci/run', () => {
  let directory: string
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'glovebox-summary-'))
    mkdirSync(join(directory, 'build'))
  })
  afterEach(() => rmSync(directory, { recursive: true }))

  const plain = { success: true, numPassedTests: 5, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0 }
  function summary(report: object | undefined, testsStatus = 0, checkStatus = 0) {
    if (report) writeFileSync(join(directory, 'build/test-report.json'), JSON.stringify(report))
    const words = [join(root, '.ci/summary.ts'), String(testsStatus), String(checkStatus)]
    const { status, stdout } = spawnSync(process.execPath, words, { cwd: directory, encoding: 'utf8' })
    return { status, last: stdout.trimEnd().split('\n').at(-1) }
  }

  it('says what passed, and holds', () => {
    expect(summary(plain)).toEqual({ status: 0, last: '5 passed, 0 failed' })
  })

  it.each([
    ['a test failed', { ...plain, success: false, numFailedTests: 2 }, 1, 0, '5 passed, 2 failed'],
    ['a suite could not be loaded', { ...plain, success: false }, 1, 0, '5 passed, 1 failed'],
    ['the tests ended badly for another reason', plain, 1, 0, '5 passed, 1 failed'],
    ['the checks failed', plain, 0, 1, '5 passed, 1 failed'],
    ['one more was skipped than is agreed', { ...plain, numPendingTests: 23 }, 0, 0, '5 passed, 0 failed, 23 skipped'],
    ['there is no report', undefined, 1, 0, '0 passed, 1 failed'],
    ['nothing was tested', { ...plain, numPassedTests: 0 }, 0, 0, '0 passed, 0 failed'],
  ] as const)('fails when %s', (_, report, testsStatus, checkStatus, last) => {
    expect(summary(report, testsStatus, checkStatus)).toEqual({ status: 1, last })
  })
})
