/**
 * The engine works in a mount namespace of its own, which a process cannot give itself in Node. A test file of it wraps
 * its content in `inPrivateMounts`: started as it is, it runs itself once more below `unshare` and reports that.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { it } from 'vitest'
import { requireOwnMountNamespace } from '../../src/engine/mounts.ts'

interface Report {
  numPassedTests: number
  testResults: { assertionResults: { fullName: string; status: string; failureMessages: string[] }[] }[]
}

const root = join(import.meta.dirname, '../..')

export function inPrivateMounts(file: string, define: () => void): void {
  if (process.getuid?.() !== 0) {
    it.skip('needs root', () => undefined)
    return
  }
  if (isPrivate()) define()
  else it('holds in a mount namespace of its own', () => runBelowUnshare(file), 240_000)
}

function isPrivate(): boolean {
  try {
    requireOwnMountNamespace()
    return true
  } catch {
    return false
  }
}

async function runBelowUnshare(file: string): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'glovebox-report-'))
  const report = join(dir, 'report.json')
  const vitest = join(root, 'node_modules/vitest/vitest.mjs')
  const words = [process.execPath, vitest, 'run', file, '--root', root, '--reporter=json', `--outputFile=${report}`]
  try {
    const ended = await promisify(execFile)('unshare', ['--mount', '--propagation', 'private', '--', ...words]).then(
      () => '',
      (error: Error & { stderr?: string }) => error.stderr || error.message,
    )
    const { testResults, numPassedTests } = JSON.parse(readFileSync(report, 'utf8')) as Report
    const failed = testResults
      .flatMap(({ assertionResults }) => assertionResults)
      .filter(({ status }) => status === 'failed')
    if (failed.length > 0)
      throw new Error(
        failed.map(({ fullName, failureMessages }) => `${fullName}\n${failureMessages.join('\n')}`).join('\n\n'),
      )
    if (ended !== '' || numPassedTests === 0) throw new Error(`the tests did not run: ${ended}`)
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}
