import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
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
    expect(runSetUp()).toMatchObject({ status: 64, stderr: expect.stringMatching(/setup, start, test, .* or docs/) })
    expect(runSetUp('strat')).toMatchObject({ status: 64, stderr: expect.stringContaining('strat') })
  })

  it('does for "npm run setup" what it does for "npm start" before serving, and nothing more', () => {
    const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    expect([scripts.setup, scripts.start]).toEqual(['sh setup/run.sh setup', 'sh setup/run.sh start'])
    // A copy of the tree without its packages and builds, and programs on its PATH that record what they are asked to do.
    const copy = mkdtempSync(join(tmpdir(), 'glovebox-set-up-'))
    const trace = (command: string) => {
      const place = join(copy, command)
      for (const part of ['setup', 'guest', 'src', 'package.json', 'package-lock.json'])
        cpSync(join(root, part), join(place, part), { recursive: true })
      const bin = join(place, 'node_modules/.bin')
      mkdirSync(bin, { recursive: true })
      for (const name of readdirSync(join(root, 'node_modules')).filter((name) => name.startsWith('node-linux-')))
        symlinkSync(join(root, 'node_modules', name), join(place, 'node_modules', name))
      const record = (name: string, then: string) =>
        writeFileSync(join(bin, name), `#!/bin/sh\necho "${name} $*" >>"${place}/trace"\n${then}\n`, { mode: 0o755 })
      record('npm', 'true')
      record('node', 'true')
      const { status, stderr } = spawnSync('sh', ['setup/run.sh', command], {
        cwd: place,
        encoding: 'utf8',
        env: { PATH: `${bin}:${process.env.PATH}` },
      })
      expect([status, stderr]).toEqual([0, expect.stringContaining('building the guest')])
      return {
        steps: readFileSync(join(place, 'trace'), 'utf8').trim().split('\n'),
        built: readdirSync(join(place, 'build')),
      }
    }
    const [setup, start] = [trace('setup'), trace('start')]
    rmSync(copy, { recursive: true })
    expect(start.steps.at(-1)).toBe('node src/main.ts serve')
    expect(setup.steps).toEqual(start.steps.slice(0, -1))
    expect(setup.built).toEqual(start.built)
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

  type Status = 'passed' | 'failed' | 'skipped'
  const report = (file: string, tests: Status[], isBroken = false) => ({
    name: join(directory, file),
    status: isBroken || tests.includes('failed') ? 'failed' : 'passed',
    assertionResults: tests.map((status, n) => ({ ancestorTitles: ['it'], title: `does ${n}`, status })),
  })
  const write = (name: string, ...testResults: object[]) =>
    writeFileSync(join(directory, 'build', name), JSON.stringify({ testResults }))
  const run = (program: string, ...words: string[]) => {
    const { status, stdout } = spawnSync(process.execPath, [join(root, '.ci', program), ...words], {
      cwd: directory,
      encoding: 'utf8',
    })
    return { status, lines: stdout.trimEnd().split('\n') }
  }
  const five: Status[] = ['passed', 'passed', 'passed', 'passed', 'passed']

  it('says what passed, and holds', () => {
    write('test-report.json', report('a', five))
    expect(run('summary.ts', '0', 'none', '0')).toEqual({ status: 0, lines: ['5 passed, 0 failed'] })
  })

  it.each<[string, Status[], boolean, [string, string], string]>([
    ['a test failed', [...five, 'failed', 'failed'], false, ['1', '0'], '5 passed, 2 failed'],
    ['a suite could not be loaded', five, true, ['1', '0'], '5 passed, 1 failed'],
    ['the tests failed for another reason', five, false, ['1', '0'], '5 passed, 1 failed'],
    ['the checks failed', five, false, ['0', '1'], '5 passed, 1 failed'],
    [
      'more tests were skipped than allowed',
      [...five, ...Array<Status>(24).fill('skipped')],
      false,
      ['0', '0'],
      '5 passed, 0 failed, 24 skipped',
    ],
    ['nothing was tested', [], false, ['0', '0'], '0 passed, 0 failed'],
  ])('fails when %s', (_, tests, isBroken, [testsStatus, checkStatus], last) => {
    write('test-report.json', report('a', tests, isBroken))
    const { status, lines } = run('summary.ts', testsStatus, 'none', checkStatus)
    expect([status, lines.at(-1)]).toEqual([1, last])
  })

  it('allows the tests of foreign clients to be skipped where no package registry can be reached', () => {
    const titled = (title: string) => ({
      name: join(directory, 'clients'),
      status: 'passed',
      assertionResults: Array.from({ length: 24 }, () => ({ ancestorTitles: [title], title: 'it', status: 'skipped' })),
    })
    write('test-report.json', report('a', five), titled('Codex (no package registry)'))
    expect(run('summary.ts', '0', 'none', '0')).toEqual({
      status: 0,
      lines: ['24 tests of clients were skipped: no package registry can be reached', '5 passed, 0 failed, 24 skipped'],
    })
    write('test-report.json', report('a', five), titled('Codex'))
    expect(run('summary.ts', '0', 'none', '0').status).toBe(1)
  })

  it('fails when there is no report, and when an error belonged to no test', () => {
    expect(run('summary.ts', '1', 'none', '0')).toMatchObject({ status: 1 })
    write('test-report.json', report('a', five))
    writeFileSync(join(directory, 'build/errors-outside-tests'), '1\n')
    expect(run('summary.ts', '0', 'none', '0').lines.at(-1)).toBe('5 passed, 1 failed')
    expect(run('summary.ts', '1', '0', '0').status).toBe(1)
  })

  it('retries a few failed files, and lists the tests that needed it', () => {
    write('test-report.json', report('a', five), report('b', ['passed', 'failed']), report('c', ['skipped'], true))
    expect(run('second-try.ts').lines).toEqual(['b', 'c'])
    write('second-report.json', report('b', ['passed', 'passed']), report('c', ['passed']))
    const lines = ['needed a second try: b > it > does 1', 'needed a second try: c', '8 passed, 0 failed']
    expect(run('summary.ts', '1', '0', '0')).toEqual({ status: 0, lines })
  })

  it('fails if the second try fails as well, in any test', () => {
    write('test-report.json', report('a', five), report('b', ['passed', 'failed']))
    write('second-report.json', report('b', ['passed', 'failed']))
    expect(run('summary.ts', '1', '1', '0')).toEqual({ status: 1, lines: ['6 passed, 1 failed'] })
    write('second-report.json', report('b', ['failed', 'passed']))
    expect(run('summary.ts', '1', '1', '0')).toMatchObject({ status: 1 })
    write('second-report.json', report('b', ['passed', 'passed']))
    expect(run('summary.ts', '1', '1', '0')).toMatchObject({ status: 1 })
  })

  it('fails without a second try if too many tests failed', () => {
    write('test-report.json', report('a', five), report('b', Array(6).fill('failed')))
    expect(run('second-try.ts').lines).toEqual([''])
    write('second-report.json', report('b', Array(6).fill('passed')))
    expect(run('summary.ts', '1', '0', '0')).toMatchObject({ status: 1 })
  })
})
