import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { startAgent, type TestAgent } from '../../support/agent-process.ts'

/** Programs that are not on every machine are replaced by ones that print what the real ones have printed. */
let root: string
let agent: TestAgent

beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'glovebox-reports-'))
  mkdirSync(join(root, 'bin'))
  symlinkSync('/usr/bin/python3', join(root, 'bin/python3'))
  agent = await startAgent(root, { PATH: join(root, 'bin') })
})
afterEach(async () => {
  await agent.agent.close()
  rmSync(root, { recursive: true, force: true })
})

/** Makes a program that prints texts and exits with a code. */
function program(name: string, stdout: string, stderr: string, code: number) {
  const text = `import sys\nsys.stdout.write(${JSON.stringify(stdout)})\nsys.stderr.write(${JSON.stringify(stderr)})\nsys.exit(${code})\n`
  writeFileSync(join(root, 'bin', name), `#!/usr/bin/python3\n${text}`, { mode: 0o755 })
}

const findingsOf = async (op: string) => {
  const { findings } = await agent.ok<{ findings: { detail?: string }[] }>(op)
  return findings.map(({ detail: _, ...finding }) => finding)
}

describe('tests of Go', () => {
  beforeEach(() => writeFileSync(join(root, 'go.mod'), 'module example.com/sums\n\ngo 1.24\n'))

  /** As `go test -json` prints the output of a test that fails. */
  const failed = (Package: string, Test: string, lines: readonly string[]) =>
    [
      ...lines.map((line) => ({ Action: 'output', Package, Test, Output: `${line}\n` })),
      { Action: 'fail', Package, Test, Elapsed: 0 },
    ]
      .map((event) => `${JSON.stringify(event)}\n`)
      .join('')

  it('are reported with the file in its package, and not again for the test that contains them', async () => {
    const name = 'example.com/sums'
    const output = [
      failed(name, 'TestAdd', ['=== RUN   TestAdd', '    sums_test.go:7: Add(1, 2) = 3, want 4', '--- FAIL: TestAdd']),
      failed(`${name}/inner`, 'TestSub/deep', ['    inner_test.go:12: deep fails']),
      failed(`${name}/inner`, 'TestSub', ['--- FAIL: TestSub (0.00s)']),
    ]
    program('go', output.join(''), '', 1)
    expect(await findingsOf('tests')).toEqual([
      {
        file: 'sums_test.go',
        line: 7,
        rule: 'test',
        severity: 'error',
        message: 'Add(1, 2) = 3, want 4',
        test: 'TestAdd',
      },
      {
        ...{ file: 'inner/inner_test.go', line: 12, rule: 'test', severity: 'error' },
        ...{ message: 'deep fails', test: 'TestSub/deep' },
      },
    ])
  })

  it('that panic are reported where they did', async () => {
    const lines = [
      '--- FAIL: TestPanics (0.00s)',
      'panic: assignment to entry in nil map [recovered, repanicked]',
      '',
      'goroutine 22 [running]:',
      'testing.tRunner.func1.2({0x55a7a0, 0x6cacf0})',
      '\t/usr/local/go/src/testing/testing.go:1974 +0x232',
      'panic({0x55a7a0?, 0x6cacf0?})',
      '\t/usr/local/go/src/runtime/panic.go:860 +0x13a',
      'example.com/sums.TestPanics(0x32a1ea954b48?)',
      `\t${root}/sums_test.go:19 +0x28`,
    ]
    program('go', failed('example.com/sums', 'TestPanics', lines), '', 1)
    expect(await findingsOf('tests')).toEqual([
      {
        ...{ file: 'sums_test.go', line: 19, rule: 'test', severity: 'error' },
        ...{ message: 'panic: assignment to entry in nil map', test: 'TestPanics' },
      },
    ])
  })

  it('that do not compile are reported with the message of the compiler, as by vet', async () => {
    const events = ['# sums [sums.test]\n', './sums.go:5:1: syntax error: unexpected }, expected expression\n'].map(
      (Output) => `${JSON.stringify({ ImportPath: 'sums [sums.test]', Action: 'build-output', Output })}\n`,
    )
    program('go', events.join(''), '', 1)
    expect(await findingsOf('tests')).toEqual([
      {
        ...{ file: 'sums.go', line: 5, column: 1, severity: 'error' },
        message: 'syntax error: unexpected }, expected expression',
      },
    ])
    program('go', '', "# sums\n# [sums]\nvet: ./sums.go:5:1: expected operand, found '}'\n", 1)
    expect(await findingsOf('typecheck')).toEqual([
      { file: 'sums.go', line: 5, column: 1, severity: 'error', message: "expected operand, found '}'" },
    ])
  })
})

describe('tests of Rust', () => {
  beforeEach(() => writeFileSync(join(root, 'Cargo.toml'), '[package]\nname = "sums"\n'))
  const place = { file: 'src/lib.rs', line: 9, column: 9, rule: 'test', severity: 'error', test: 'tests::adds' }
  const note = 'note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n\n\nfailures:\n'

  it('are reported with what they assert', async () => {
    const text =
      "---- tests::adds stdout ----\n\nthread 'tests::adds' (27794) panicked at src/lib.rs:9:9:\nassertion `left == right` failed: wrong sum\n  left: 3\n right: 4\n"
    program('cargo', `\nrunning 2 tests\n\nfailures:\n\n${text}${note}    tests::adds\n`, 'error: test failed\n', 101)
    expect(await findingsOf('tests')).toEqual([
      { ...place, message: 'assertion `left == right` failed: wrong sum; left: 3; right: 4' },
    ])
    const older = "---- tests::adds stdout ----\nthread 'tests::adds' panicked at 'wrong sum', src/lib.rs:9:9\n"
    program('cargo', `failures:\n\n${older}${note}`, '', 101)
    expect(await findingsOf('tests')).toEqual([{ ...place, message: 'wrong sum' }])
  })

  it('that do not compile are reported once with the message of the compiler, as by check', async () => {
    const error =
      'error[E0425]: cannot find value `c` in this scope\n --> src/lib.rs:2:9\n  |\n2 |     a + c\n  |         ^ not found\n\n'
    program('cargo', '', `   Compiling sums\n${error}${error}error: could not compile \`sums\`\n`, 101)
    const expected = [
      {
        ...{ file: 'src/lib.rs', line: 2, column: 9, rule: 'E0425', severity: 'error' },
        message: 'cannot find value `c` in this scope',
      },
    ]
    expect(await findingsOf('tests')).toEqual(expected)
    program('cargo', '', 'src/lib.rs:2:9: error[E0425]: cannot find value `c` in this scope\n', 101)
    expect(await findingsOf('typecheck')).toEqual(expected)
  })

  it('are linted by clippy, which is refused where it is not installed', async () => {
    program('cargo', '', '', 0)
    expect(await agent.refused('lint')).toBe(
      'cargo-clippy is not installed in this sandbox. Install it with: rustup component add clippy',
    )
  })
})

describe('checks of Python', () => {
  it('are reported with their rules', async () => {
    writeFileSync(join(root, 'pyproject.toml'), '')
    program('ruff', 'a.py:1:8: F401 [*] `os` imported but unused\nFound 1 error.\n', '', 1)
    expect(await findingsOf('lint')).toEqual([
      {
        ...{ file: 'a.py', line: 1, column: 8, rule: 'F401', severity: 'error' },
        message: '[*] `os` imported but unused',
      },
    ])
    program('mypy', 'a.py:3: error: Incompatible return value type  [return-value]\na.py:3: note: See here\n', '', 1)
    expect(await findingsOf('typecheck')).toEqual([
      { file: 'a.py', line: 3, rule: 'return-value', severity: 'error', message: 'Incompatible return value type' },
      { file: 'a.py', line: 3, severity: 'note', message: 'See here' },
    ])
  })
})

describe('tests of Node.js', () => {
  const place = { rule: 'test', severity: 'error' }

  beforeEach(() => writeFileSync(join(root, 'package.json'), '{"scripts": {"test": "runner"}}'))

  it('are reported by vitest, once', async () => {
    const out =
      ' ❯ a.test.js (2 tests | 1 failed) 8ms\n   × adds 6ms\n     → expected 2 to be 3 // Object.is equality\n'
    const err =
      "⎯⎯⎯⎯⎯⎯⎯ Failed Tests 1 ⎯⎯⎯⎯⎯⎯⎯\n\n FAIL  a.test.js > sum > adds\nAssertionError: expected 2 to be 3 // Object.is equality\n\n- Expected\n+ Received\n\n- 3\n+ 2\n\n ❯ a.test.js:2:36\n      1| import {test,expect}\n\n⎯⎯⎯[1/2]⎯\n\n FAIL  b.test.js [ b.test.js ]\nError: Cannot find package 'x'\n"
    program('npm', out, err, 1)
    expect(await findingsOf('tests')).toEqual([
      {
        ...{ file: 'a.test.js', line: 2, ...place },
        ...{ message: 'AssertionError: expected 2 to be 3 // Object.is equality', test: 'sum > adds' },
      },
      { file: 'b.test.js', ...place, message: "Error: Cannot find package 'x'" },
    ])
  })

  it('are reported by jest, also if a summary repeats them', async () => {
    const failure =
      "  ● sum › adds\n\n    expect(received).toBe(expected) // Object.is equality\n\n    Expected: 3\n    Received: 2\n\n    > 1 | test('adds', () => {\n        |          ^\n\n      at Object.toBe (a.test.js:1:36)\n\n"
    program('npm', '', `FAIL ./a.test.js\n  ✕ adds (32 ms)\n\n${failure}${failure}Test Suites: 1 failed, 1 total\n`, 1)
    expect(await findingsOf('tests')).toEqual([
      {
        ...{ file: 'a.test.js', line: 1, ...place, test: 'sum › adds' },
        message: 'expect(received).toBe(expected) // Object.is equality; Expected: 3; Received: 2',
      },
    ])
  })

  it('are reported by mocha', async () => {
    const failure =
      '  1) sum\n       adds:\n\n      AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:\n\n2 !== 3\n\n      + expected - actual\n\n      -2\n      +3\n      \n      at Context.<anonymous> (test/a.js:2:43)\n      at process.processImmediate (node:internal/timers:574:21)\n'
    program('npm', `\n  sum\n    1) adds\n\n\n  0 passing (26ms)\n  1 failing\n\n${failure}\n\n`, '', 1)
    expect(await findingsOf('tests')).toEqual([
      {
        ...{ file: 'test/a.js', line: 2, ...place, test: 'sum adds' },
        message: 'AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:; 2 !== 3',
      },
    ])
  })
})
